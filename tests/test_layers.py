from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.errors import UsageError
from layerscope.layers import as_layer_order, make_layer, parse_layers, standard_layers

STANDARD = ["embed", "block.1", "block.2", "block.3", "block.4", "block.5", "block.6", "norm"]
BOUND = st.none() | st.integers(-12, 12)


def parsed(selection, n_blocks=6, has_norm=True):
    return [layer.name for layer in parse_layers(selection, n_blocks, has_norm)]


def test_standard_layers_are_those_of_hidden_states():
    assert standard_layers(6, has_norm=True) == STANDARD
    assert standard_layers(6, has_norm=False) == STANDARD[:-1]


@pytest.mark.parametrize(
    ("name", "blocks", "depth", "is_normed"),
    [
        ("embed", 0, 0.0, False),
        ("block.3", 3, 0.5, False),
        ("block.6", 6, 1.0, False),
        ("norm", 6, 1.0, True),
        ("normed.0", 0, 0.0, True),
        ("normed.3", 3, 0.5, True),
        ("normed.6", 6, 1.0, True),
    ],
)
def test_depth_is_the_share_of_blocks_that_have_run(name, blocks, depth, is_normed):
    layer = make_layer(name, 6)
    assert (layer.name, layer.blocks, layer.depth, layer.is_normed) == (name, blocks, depth, is_normed)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("block.0", r"block\.1 … block\.6"),
        ("block.7", r"6 blocks"),
        ("normed.7", r"normed\.0 … normed\.6"),
        ("blok.1", "embed, block.1"),
        ("block.-1", "no layer is called"),
        ("block.03", "no layer is called"),
        ("normed.00", "no layer is called"),
        ("xblock.1", "no layer is called"),
        ("block.1x", "no layer is called"),
        ("", "no layer is called"),
    ],
)
def test_a_name_that_is_no_layer_is_refused(name, says):
    with pytest.raises(UsageError, match=says):
        make_layer(name, 6)


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("all", STANDARD),
        ("0", ["embed"]),
        ("6", ["block.6"]),
        ("7", ["norm"]),
        ("-1", ["norm"]),
        ("-8", ["embed"]),
        ("norm,embed", ["embed", "norm"]),
        ("0,4:8,-1,norm", ["embed", "block.4", "block.5", "block.6", "norm"]),
        (" 2 , block.2 ", ["block.2"]),
        ("::3", ["embed", "block.3", "block.6"]),
        ("::-3", ["block.1", "block.4", "norm"]),
        ("-2:", ["block.6", "norm"]),
        (":1", ["embed"]),
        (":", STANDARD),
        ("normed", [f"normed.{k}" for k in range(6)]),
        ("3,normed.3,4", ["block.3", "normed.3", "block.4"]),
        ("norm,normed.6", ["normed.6", "norm"]),
        ("normed.6,norm", ["normed.6", "norm"]),
        ([0, "block.2", -1], ["embed", "block.2", "norm"]),
    ],
)
def test_what_a_selection_stands_for(selection, expected):
    assert parsed(selection) == expected


def test_without_a_final_norm_the_last_layer_is_the_last_block():
    assert parsed("-1,6", has_norm=False) == ["block.6"]
    assert parsed("all", has_norm=False) == STANDARD[:-1]


@pytest.mark.parametrize("selection", ["norm", "normed", "normed.2", "0,norm"])
def test_a_model_without_final_norm_has_no_normed_layers(selection):
    with pytest.raises(UsageError, match="no final norm"):
        parsed(selection, has_norm=False)


@pytest.mark.parametrize(
    ("selection", "says"),
    [
        ("8", r"layer 8 does not exist: the layers are 0 \(embed\) … 7 \(norm\)"),
        ("-9", "layer -9 does not exist"),
        ("5:5", "selects none"),
        ("20:", "selects none"),
        ("::0", "step 0"),
        ("block.9", "6 blocks"),
        ("blok.2", "did you mean 'block.2'"),
        ("", "no layer is called"),
        ("0,,1", "no layer is called"),
        ("-:3", "no layer is called"),
        ("1:-", "no layer is called"),
        ("1.5", "no layer is called"),
        ([], "no layer selected"),
    ],
)
def test_a_selection_that_makes_no_sense_is_refused(selection, says):
    with pytest.raises(UsageError, match=says):
        parsed(selection)


@settings(deadline=None, max_examples=100)
@given(start=BOUND, stop=BOUND, step=st.none() | st.integers(-4, 4).filter(bool))
def test_slices_are_pythons(start, stop, step):
    text = ":".join("" if part is None else str(part) for part in (start, stop))
    text += "" if step is None else f":{step}"
    expected = STANDARD[start:stop:step]
    if expected:
        assert parsed(text) == sorted(expected, key=STANDARD.index)
    else:
        with pytest.raises(UsageError, match="selects none"):
            parsed(text)


@settings(deadline=None, max_examples=50)
@given(index=st.integers(-8, 7))
def test_indices_are_pythons(index):
    assert parsed(str(index)) == parsed([index]) == [STANDARD[index]]


EVERY = ["embed", "normed.0", *(f"{site}.{k}" for k in range(1, 13) for site in ("block", "normed")), "norm"]


@settings(deadline=None, max_examples=50)
@given(items=st.lists(st.sampled_from(EVERY), min_size=1))
def test_layers_come_in_order_of_computation_each_once(items):
    expected = sorted(set(items), key=EVERY.index)
    assert parsed(items, n_blocks=12) == expected
    assert as_layer_order(set(items)) == expected


def test_the_order_is_not_alphabetical():
    assert as_layer_order(["norm", "block.10", "block.9", "embed"]) == [
        "embed",
        "block.9",
        "block.10",
        "norm",
    ]


def test_an_unknown_name_has_no_place_in_the_order():
    with pytest.raises(UsageError, match=r"layer\.3"):
        as_layer_order(["embed", "layer.3"])

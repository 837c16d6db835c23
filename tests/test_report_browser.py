"""The report in a browser: what a reader can do with it, and what it must never do."""

from __future__ import annotations

import re
import shutil

import pandas as pd
import pytest

from layerscope.report import write_report
from tests.plot_frames import DESCRIPTIONS, LABELS, encoder, rows_frame

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs a browser: apt-get install --no-install-recommends chromium"
)

EVIL = "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 1'>"
EXPORT = "layerscope export 'my model' --picks cache/frames/picks.parquet --cache cache -o model-block.4"
CONTRASTS = """() => {
  const channels = colour => {
    const found = colour.match(/[\\d.]+/g).map(Number);
    return found.length === 4 && found[3] === 0 ? null : found.slice(0, 3);
  };
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)].sort((one, other) => other - one);
    return (x + 0.05) / (y + 0.05);
  };
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = channels(getComputedStyle(at).backgroundColor);
      if (colour) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest("svg, script, style") || !element.getClientRects().length) continue;
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!own) continue;
    found.push(["text", element.outerHTML.slice(0, 80),
      ratio(channels(getComputedStyle(element).color), behind(element))]);
  }
  for (const mark of document.querySelectorAll("svg.drawing use, svg.drawing path")) {
    const group = mark.closest("g[id*='text_'], g[id*='line.']");
    if (!group || mark.closest("defs, .on-colour")) continue;
    const style = getComputedStyle(mark);
    const kind = group.id.includes("text_") ? "text" : "line";
    const colour = channels(kind === "text" ? style.fill : style.stroke);
    if (colour) found.push([kind, group.id, ratio(colour, behind(mark.closest("svg")))]);
  }
  return found;
}"""


def frames():
    """Two metrics of two poolings, one value missing; scores; picks."""
    metrics, scores, picks = encoder()
    kept = metrics["metric"].isin(["dataset_entropy", "dime"])
    return metrics[kept].reset_index(drop=True), scores, picks


def write(path, metrics, scores, picks, **more):
    given = {"labels": LABELS, "descriptions": DESCRIPTIONS, "rows": rows_frame()} | more
    return write_report(path, metrics=metrics, scores=scores, picks=picks, **given)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write(
        tmp_path_factory.mktemp("browser") / "report.html", *frames(),
        provenance={"n_draws": 100, "checksum": "sha256 " + "0123456789abcdef" * 8},
        commands=["layerscope extract 'my model' texts.txt -o cache", "layerscope report cache"],
        export_command=lambda _: EXPORT,
    )  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def show(browser):
    """Opens a page; at the end of the test it must have raised nothing and asked for nothing."""
    contexts, troubles = [], []

    def opened(path, **options):
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
        contexts.append(context)
        page = context.new_page()
        address = path.as_uri()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("requestfailed", lambda request: troubles.append(f"failed: {request.url}"))
        page.on(
            "request",
            lambda request: None if request.url in (address, "data:,") else troubles.append(request.url),
        )
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


def layers(table):
    return table.locator("tbody th").all_inner_texts()


def by_layer(metric, pooling="mean"):
    """What the frame holds of one curve."""
    metrics = frames()[0]
    rows = metrics[(metrics["metric"] == metric) & (metrics["pooling"] == pooling)]
    return rows.set_index("layer_name")["value"]


def value_in(readout, pooling="mean"):
    return float(re.search(rf"^{pooling}: (−?[\d.]+)", readout, re.M)[1].replace("−", "-"))


def curve(page, label="Dataset entropy (nats) by layer"):
    return page.locator(f'svg.drawing[aria-label^="{label}"]')


def test_it_opens_in_silence_with_the_pick_on_the_first_screen(show, report):
    for size in ({"width": 1280, "height": 800}, {"width": 360, "height": 740}):
        page = show(report, viewport=size)
        for text in ("block.4", "How sure: picked in 93 of 100 subsamples."):
            box = page.locator(".card").get_by_text(text).first.bounding_box()
            assert box["y"] + box["height"] < size["height"]


def test_click_on_a_head_sorts_its_column_either_way(show, report):
    page = show(report)
    table = page.locator("table.sortable").first
    head = table.locator("thead th", has_text="Dataset entropy")
    rising = list(by_layer("dataset_entropy").sort_values().index)
    assert layers(table) == list(by_layer("dataset_entropy").index)
    head.get_by_role("button").click()
    assert layers(table) == rising
    assert head.get_attribute("aria-sort") == "ascending"
    assert table.locator("[aria-sort]").count() == 1
    head.get_by_role("button").click()
    assert layers(table) == rising[::-1]
    assert head.get_attribute("aria-sort") == "descending"


def test_keys_sort_too_and_a_missing_value_stays_last(show, report):
    page = show(report)
    table = page.locator("table.sortable").first
    head = table.locator("thead th", has_text="DiME")
    known = by_layer("dime").dropna().sort_values()
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert layers(table) == [*known.index, "embed"]
    assert head.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Space")
    assert layers(table) == [*known.index[::-1], "embed"]
    assert head.get_attribute("aria-sort") == "descending"


def test_pointing_at_a_layer_shows_what_the_frame_holds_of_it(show, report):
    page = show(report)
    readout = page.locator(".readout")
    assert not readout.is_visible()
    curve(page).scroll_into_view_if_needed()
    for place, (layer, value) in enumerate(by_layer("dataset_entropy").items()):
        target = curve(page).locator(".reading rect").nth(place).bounding_box()
        page.mouse.move(target["x"] + target["width"] / 2, target["y"] + target["height"] / 3)
        text = readout.inner_text()
        assert text.splitlines()[0] == layer
        assert value_in(text) == pytest.approx(value, rel=2e-3)
        assert value_in(text, "last") == pytest.approx(by_layer("dataset_entropy", "last")[layer], rel=2e-3)
        assert "95% interval" in text
    page.mouse.move(2, 2)
    assert not readout.is_visible()


def test_marks_stand_on_the_drawn_points(show, report):
    page = show(report)
    drawn = curve(page).locator('g[id*="line.0.0"] use')
    marks = curve(page).locator(".reading")
    assert drawn.count() == marks.count() == 7
    for place in range(drawn.count()):
        point, mark = (
            part.bounding_box() for part in (drawn.nth(place), marks.nth(place).locator("circle").first)
        )
        for start, length in (("x", "width"), ("y", "height")):
            centres = [box[start] + box[length] / 2 for box in (point, mark)]
            assert centres[0] == pytest.approx(centres[1], abs=0.7)


def test_a_missing_value_says_why(show, report):
    page = show(report)
    curve(page, "DiME").locator(".reading").first.focus()
    assert "no value: constant" in page.locator(".readout").inner_text()


def test_a_curve_is_one_stop_of_the_tab_key_and_arrows_read_it(show, report):
    page = show(report)
    values = by_layer("dataset_entropy")
    page.locator("a[href='#values']").focus()
    stops = []
    for _ in range(40):
        page.keyboard.press("Tab")
        drawing = page.evaluate("document.activeElement.closest('svg')?.getAttribute('aria-label') ?? ''")
        stops.append(drawing)
        if drawing.startswith("Dataset entropy (nats) by layer"):
            break
    readout = page.locator(".readout")
    assert value_in(readout.inner_text()) == pytest.approx(values["embed"], rel=2e-3)
    page.keyboard.press("ArrowRight")
    assert readout.inner_text().startswith("block.1")
    assert value_in(readout.inner_text()) == pytest.approx(values["block.1"], rel=2e-3)
    spoken = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert spoken == page.evaluate("document.querySelector('.readout').textContent")
    page.keyboard.press("End")
    assert readout.inner_text().startswith("block.6")
    page.keyboard.press("Escape")
    assert not readout.is_visible()
    page.keyboard.press("Tab")
    assert not page.evaluate("document.activeElement.closest('svg')?.ariaLabel ?? ''").startswith("Dataset")


def test_a_readout_goes_with_its_layer(show, report):
    page = show(report, reduced_motion="reduce")
    readout = page.locator(".readout")
    reading = curve(page).locator(".reading").nth(2)
    reading.focus()
    readout.wait_for()
    mark, box = reading.locator("line").bounding_box(), readout.bounding_box()
    page.mouse.wheel(0, 40)
    page.wait_for_function(
        "y => document.querySelector('.readout').getBoundingClientRect().y < y", arg=box["y"]
    )
    moved = [reading.locator("line").bounding_box()["y"] - mark["y"], readout.bounding_box()["y"] - box["y"]]
    assert moved[0] == pytest.approx(moved[1], abs=1)
    page.mouse.wheel(0, 4000)
    readout.wait_for(state="hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(show, report, scheme):
    page = show(report, color_scheme=scheme)
    curve(page).locator(".reading").first.focus()  # the readout has text too
    found = pd.DataFrame(page.evaluate(CONTRASTS), columns=["kind", "where", "ratio"])
    assert set(found["kind"]) == {"text", "line"}
    low = found[found["ratio"] < found["kind"].map({"text": 4.5, "line": 3.0})]
    assert low.to_dict("records") == []


def test_dark_is_another_page_also_in_its_figures(show, report):
    seen = {}
    for scheme in ("light", "dark"):
        page = show(report, color_scheme=scheme)
        seen[scheme] = page.evaluate(
            "[document.body, ...document.querySelectorAll('svg.drawing path')]"
            ".map(part => [getComputedStyle(part).backgroundColor, getComputedStyle(part).fill])"
        )
    assert seen["light"][0] != seen["dark"][0]
    assert ["rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"] in seen["light"][1:]  # the ground of a figure
    assert ["rgba(0, 0, 0, 0)", "rgb(255, 255, 255)"] not in seen["dark"][1:]


def test_nothing_is_wider_than_a_phone(show, report):
    page = show(report, viewport={"width": 360, "height": 740}, reduced_motion="reduce")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    wide = page.evaluate(
        "[...document.querySelectorAll('main > *, article > *, footer')]"
        ".filter(part => part.getBoundingClientRect().right > 360).map(part => part.outerHTML.slice(0, 80))"
    )
    assert wide == []
    curve(page).locator(".reading").last.focus()
    page.locator(".readout").wait_for()
    box = page.locator(".readout").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360


def test_without_script_all_is_there_to_read_and_nothing_seems_to_work_that_does_not(show, report):
    page = show(report, java_script_enabled=False)
    for text in ("How sure: picked in 93 of 100 subsamples.", EXPORT, "Table of values", "checksum"):
        assert page.get_by_text(text).first.is_visible()
    assert curve(page).is_visible()
    assert "mean: 4." in curve(page).locator(".reading title").first.text_content()
    assert not page.get_by_text("Click a column's head").is_visible()
    assert not page.locator(".copy").first.is_visible()


def test_a_command_is_copied_whole(show, report):
    page = show(report, permissions=["clipboard-read", "clipboard-write"])
    page.locator(".card .copy").click()
    page.locator(".card .copy", has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == EXPORT
    assert page.get_by_role("status").inner_text() == "Command copied"


def test_where_there_is_no_clipboard_the_command_is_selected(show, report):
    page = show(report)
    page.evaluate(
        "Object.defineProperty(navigator, 'clipboard', { value: undefined });"
        "document.execCommand = () => false"
    )
    page.locator(".card .copy").click()
    page.locator(".card .copy", has_text="Selected").wait_for()
    assert page.evaluate("getSelection().toString()") == EXPORT


def test_the_first_tab_skips_to_the_pick(show, report):
    page = show(report)
    page.keyboard.press("Tab")
    link = page.get_by_role("link", name="Skip to the pick")
    assert link.bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "MAIN"


def test_landmarks_and_tables_have_names(show, report):
    page = show(report)
    for role in ("banner", "main", "navigation", "contentinfo"):
        assert page.get_by_role(role).count() == 1
    for region in page.get_by_role("region").all():
        assert region.get_attribute("aria-label") or region.get_attribute("aria-labelledby")
    assert page.get_by_role("table").count() == page.locator("caption").count()


def test_readers_who_want_less_motion_get_none(show, report):
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    assert show(report, reduced_motion="reduce").evaluate(behaviour) == "auto"
    assert show(report, reduced_motion="no-preference").evaluate(behaviour) == "smooth"


def test_paper_is_white_and_has_no_buttons(show, report):
    page = show(report, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator(".copy").first.is_visible()
    assert page.get_by_text("How sure").first.is_visible()
    assert len(page.pdf()) > 20_000


def test_names_that_are_code_stay_names(show, tmp_path):
    metrics, scores, picks = frames()
    metrics = metrics.assign(model=EVIL, corpus=EVIL, variant=EVIL)
    scores, picks = scores.assign(model=EVIL, task=EVIL), picks.assign(model=EVIL, corpus=EVIL)
    page = show(write(
        tmp_path / "report.html", metrics, scores, picks, labels={"dime": EVIL}, provenance={EVIL: EVIL},
        commands=[EVIL], export_command=lambda _: EVIL, command_note=EVIL,
    ))  # fmt: skip
    assert page.evaluate("window.hit") is None
    assert EVIL in page.locator("h1").inner_text()
    page.locator("svg.drawing .reading").first.focus()
    assert page.evaluate("window.hit") is None


def test_even_code_that_got_in_would_neither_run_nor_call(browser, report):
    context = browser.new_context()
    page = context.new_page()
    page.goto(report.as_uri())
    blocked = page.evaluate(
        """async () => {
          const script = document.createElement("script");
          script.textContent = "window.hit = 1";
          document.body.append(script);
          const image = new Image();
          image.src = "https://example.org/x.png";
          const called = await fetch("https://example.org/").then(() => true, () => false);
          return [window.hit === undefined, !called, await image.decode().then(() => false, () => true)];
        }"""
    )
    context.close()
    assert blocked == [True, True, True]

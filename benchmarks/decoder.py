"""The packaged decoder as a folder, for the benchmarks and the reports."""

from pathlib import Path

from safetensors.torch import save_file

from layerscope import packaged
from layerscope.models import find_model, load_model


def smollm2(place: Path) -> Path:
    """SmolLM2-135M, converted to safetensors in ``place`` once.

    Without its chat template: sentence-transformers would make every text a turn in it, three times as long.
    """
    folder = place / "SmolLM2-135M-Instruct"
    if not (folder / "model.safetensors").is_file():
        loaded = load_model(find_model(packaged.smollm2()))
        folder.mkdir(parents=True, exist_ok=True)
        loaded.tokenizer.chat_template = None
        loaded.tokenizer.save_pretrained(folder)
        loaded.model.config.save_pretrained(folder)
        # Under another name first, so that an interrupted conversion is not taken for a whole one.
        save_file(loaded.model.state_dict(), folder / "part.safetensors", metadata={"format": "pt"})
        (folder / "part.safetensors").rename(folder / "model.safetensors")
    (folder / "chat_template.jinja").unlink(missing_ok=True)  # of a folder made earlier
    return folder

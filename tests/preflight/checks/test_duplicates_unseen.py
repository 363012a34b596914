"""What is written of completions."""

from __future__ import annotations

from tests.preflight.launches import launch, told

CHECK = "duplicates-unseen"


def test_one_per_prompt_hides_groups_where_there_is_no_file() -> None:
    settings = {"log_completions": True, "wandb_log_unique_prompts": True}
    assert len(told(CHECK, launch(version="0.24.0", **settings))) == 1
    assert told(CHECK, launch(version="0.28.0", **settings)) == []
    assert told(CHECK, launch("ms-swift", "4.6.0", **settings)) == []

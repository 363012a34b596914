"""ms-swift: its keys by version, its Megatron trainer's console format, and its launch rules."""

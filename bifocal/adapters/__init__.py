"""Trained models in the interfaces of public benchmarks: CLIP_benchmark and MTEB."""

"""Stage pretrain_sorter."""

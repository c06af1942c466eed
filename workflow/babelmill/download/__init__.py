"""The stage `download`: datasets of the Hugging Face Hub, or the parts of them that are asked for, as files on disk.

`parts` opens repositories, `data_files` selects the files of one, `counting` reads them as they arrive and
says when a budget is full. `__main__` is the stage.
"""

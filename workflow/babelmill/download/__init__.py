"""Run the stage `download`, which fetches datasets of the Hugging Face Hub, or parts of them, as files on disk.

`parts` opens repositories, `data_files` selects the files of one, `counting` reads them as they arrive and
says when a budget is full. `__main__` is the stage.
"""

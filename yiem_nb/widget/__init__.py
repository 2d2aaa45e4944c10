"""The front end: what the browser is sent, what it may ask, and the widgets that show it.

anywidget and ipywidgets are imported here alone, with the first live view.
"""

"""The prepare step: turns a source of labelled texts or images into the on-disk data set."""

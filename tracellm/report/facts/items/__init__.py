"""Facts of a request's images and sounds: what each is, the steps that used it, and both in words."""

"""Between the engine core and the workers: an executor hands a step to them and brings back what they sampled."""

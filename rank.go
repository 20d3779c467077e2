package stepvan

// Rank numbers the instances of one role, from 0. The scheduler gives it, unless the settings do.
type Rank int

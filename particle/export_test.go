package particle

// Kept is how much a loop keeps of calls.
func Kept(l *Loop) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = len(l.futures) + len(l.open)
	for _, d := range l.devices {
		n += len(d.chains) + d.nested.len() + d.others.len() + d.resumed.len()
	}
	for _, r := range l.remotes {
		n += r.out.len() + len(r.calls.queue) + len(r.answers.queue) + len(r.views)
	}
	return n
}

package storages

// useList has the registered storages, in the order of their last use. Table.mu guards it.
type useList struct {
	oldest, newest *storage
	count          int
}

// links are of a storage in a useList.
type links struct{ older, newer *storage }

// add adds s as the newest.
func (l *useList) add(s *storage) {
	s.older, s.newer = l.newest, nil
	if l.newest != nil {
		l.newest.newer = s
	} else {
		l.oldest = s
	}
	l.newest = s
	l.count++
}

func (l *useList) remove(s *storage) {
	if s.older != nil {
		s.older.newer = s.newer
	} else {
		l.oldest = s.newer
	}
	if s.newer != nil {
		s.newer.older = s.older
	} else {
		l.newest = s.older
	}
	s.links = links{}
	l.count--
}

// renew makes s the newest.
func (l *useList) renew(s *storage) {
	if l.newest != s {
		l.remove(s)
		l.add(s)
	}
}

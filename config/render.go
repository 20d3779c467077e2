package config

import (
	"slices"
	"strings"
)

// Pair is one setting as text.
type Pair struct{ Name, Value string }

// Shared returns the settings on which all nodes of a cluster must agree, in the
// order of the table. The scheduler compares them one by one and can name the one
// that differs.
func (s Settings) Shared() []Pair {
	var out []Pair
	for i := range table {
		if f := &table[i]; f.shared {
			out = append(out, Pair{f.name, f.format(f.at(&s))})
		}
	}
	return out
}

// Env renders the settings as NAME=value, for the environment of a child process:
// required settings and those that differ from their defaults. FromEnv turns it
// back into the same settings.
func (s Settings) Env() []string {
	var out []string
	for i := range table {
		f := &table[i]
		v := f.at(&s)
		if text := f.format(v); text != "" && (f.required || f.always || !v.Equal(f.initial())) {
			out = append(out, f.name+"="+text)
		}
	}
	return out
}

// Clean returns environ without the variables that are settings, so that a
// launcher can put Env in their place.
func Clean(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return byName[name] != nil
	})
}

// Row is a setting with all that is known of it.
type Row struct {
	Group   string   `json:"group"`   // section of docs/settings.md
	Name    string   `json:"name"`    // the variable
	Aliases []string `json:"aliases"` // further names, misspelt ones included
	Value   string   `json:"value"`   // as Env writes it
	Default string   `json:"default"` // "" for a setting without a default
	Source  string   `json:"source"`  // the variable that was set, "default" or "derived"
	Accepts string   `json:"accepts"` // words or limits
	Shared  bool     `json:"shared"`  // all nodes must agree
	Doc     string   `json:"doc"`
}

// Table returns every setting in the order of Settings. lookup serves to say where
// a value is from; nil means that no variable was set.
func (s Settings) Table(lookup func(string) (string, bool)) []Row {
	rows := make([]Row, len(table))
	for i := range table {
		f := &table[i]
		rows[i] = Row{
			Group: f.group, Name: f.name, Aliases: f.names()[1:], Value: f.format(f.at(&s)),
			Default: f.def, Source: f.source(&s, lookup), Accepts: f.accepts(), Shared: f.shared, Doc: f.doc,
		}
	}
	return rows
}

// Written returns the variable by which the user has set one of the settings called names, and its text. It takes the
// first setting that lookup knows. Without one, it takes the first whose value is not the default, else the first of
// names. A nil lookup stands for an environment without settings.
func (s Settings) Written(lookup func(string) (string, bool), names ...string) (variable, value string) {
	chosen := byName[names[0]]
	for i := len(names) - 1; i >= 0; i-- {
		if f := byName[names[i]]; f != nil && !f.at(&s).Equal(f.initial()) {
			chosen = f
		}
	}
	for i := len(names) - 1; i >= 0; i-- {
		if f := byName[names[i]]; f != nil && len(set(lookup, f.names())) > 0 {
			chosen = f
		}
	}
	if chosen == nil {
		return names[0], ""
	}
	if src, ok := chosen.written(&s, lookup); ok {
		return src.name, src.value
	}
	return chosen.name, chosen.format(chosen.at(&s))
}

// written returns the variable that has given the row the value that it has in s, if there is one.
func (f *field) written(s *Settings, lookup func(string) (string, bool)) (source, bool) {
	for _, src := range set(lookup, f.names()) {
		if v, err := f.parse(src.value); err == nil && v.Equal(f.at(s)) {
			return src, true
		}
	}
	return source{}, false
}

// source says where the value that the row has in s is from.
func (f *field) source(s *Settings, lookup func(string) (string, bool)) string {
	if src, ok := f.written(s, lookup); ok {
		return src.name
	}
	if f.at(s).Equal(f.initial()) {
		return "default"
	}
	return "derived"
}

// accepts says in a few words what a variable may be.
func (f *field) accepts() string {
	switch {
	case len(f.values) > 0:
		return strings.Join(f.values, ", ")
	case f.typ == bytesType:
		return "size from " + f.min + " to " + f.max
	case f.typ == durationType && f.unit.Seconds() < 1:
		return "time from " + f.min + " to " + f.max + ", bare number in ms"
	case f.typ == durationType:
		return "time from " + f.min + " to " + f.max + ", bare number in s"
	case f.min != "":
		return f.min + " to " + f.max
	case f.def == "0" || f.def == "1":
		return "0 or 1"
	}
	return "text"
}

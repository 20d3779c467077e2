package config

import (
	"reflect"
	"strings"
	"time"
)

// field is one row of the table of settings: the tags of one field of Settings.
type field struct {
	index    int          // in Settings
	typ      reflect.Type // of the field
	name     string
	aliases  []string // name first comes first in precedence, then these
	misspelt []string
	group    string
	def      string
	then     string
	required bool
	shared   bool
	always   bool
	values   []string
	words    map[string]string // lower case word -> value
	unit     time.Duration
	min, max string
	doc      string
}

// table is derived from the tags of Settings and never written again.
var table = fields(reflect.TypeFor[Settings]())

// byName finds a row by its variable, aliases included.
var byName = index(table)

func fields(t reflect.Type) []field {
	all := make([]field, t.NumField())
	group := ""
	for i := range all {
		f := newField(t.Field(i), i)
		if f.group == "" {
			f.group = group
		}
		group = f.group
		all[i] = f
	}
	return all
}

func newField(sf reflect.StructField, i int) field {
	tag := sf.Tag.Get
	f := field{
		index: i, typ: sf.Type, name: tag("name"), group: tag("group"),
		aliases: strings.Fields(tag("alias")), misspelt: strings.Fields(tag("misspelt")),
		def: tag("default"), then: tag("then"), min: tag("min"), max: tag("max"), doc: tag("doc"),
		required: tag("required") == "yes", shared: tag("shared") == "yes", always: tag("env") == "always",
		values: strings.Fields(tag("values")), words: map[string]string{}, unit: time.Second,
	}
	if tag("unit") == "ms" {
		f.unit = time.Millisecond
	}
	for _, v := range f.values {
		f.words[strings.ToLower(v)] = v
	}
	for _, pair := range strings.Fields(tag("map")) {
		word, value, _ := strings.Cut(pair, "=")
		f.words[word] = value
	}
	return f
}

func index(all []field) map[string]*field {
	m := map[string]*field{}
	for i := range all {
		for _, n := range all[i].names() {
			m[n] = &all[i]
		}
	}
	return m
}

// names lists every variable of the row, in order of precedence.
func (f *field) names() []string {
	n := append([]string{f.name}, f.aliases...)
	return append(n, f.misspelt...)
}

// at returns the field of s that the row is about, settable.
func (f *field) at(s *Settings) reflect.Value { return reflect.ValueOf(s).Elem().Field(f.index) }

package config

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/stepvan/stepvan"
	"github.com/stepvan/stepvan/internal/text"
)

// FromEnv reads the settings from an environment. It calls lookup with the names
// of settings only. lookup answers like os.LookupEnv; an empty variable counts as
// not set. The list environ is the whole environment as NAME=value (os.Environ).
// FromEnv looks there for names that do not belong to a setting; nil skips that.
//
// The error joins every mistake. Each mistake is a *stepvan.ConfigError whose Key
// is the variable as the user wrote it. Settings that are wrong have their defaults
// in the result, so that a caller which only shows settings can continue.
func FromEnv(lookup func(string) (string, bool), environ []string) (Settings, []Warning, error) {
	r := &reader{lookup: lookup, checker: checker{written: map[string]source{}, bad: map[string]bool{}}}
	unknown := r.scan(environ)
	for i := range table {
		r.read(&table[i], unknown)
	}
	r.derive()
	r.check(&r.settings)
	return r.settings, r.warnings, errors.Join(r.errs...)
}

// FromProcess is FromEnv on the environment of this process.
func FromProcess() (Settings, []Warning, error) { return FromEnv(OfProcess, os.Environ()) }

// OfProcess is the lookup of FromProcess.
func OfProcess(name string) (string, bool) { return os.LookupEnv(name) }

// Lookup answers like OfProcess for an environment of NAME=value entries. Of several with one name the last counts.
func Lookup(environ []string) func(name string) (string, bool) {
	values := make(map[string]string, len(environ))
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

// Default returns the settings of an empty environment. The required ones are
// zero, and Validate names them.
func Default() Settings {
	var s Settings
	for i := range table {
		f := &table[i]
		f.at(&s).Set(f.initial())
	}
	return s
}

// source is a variable as the user wrote it.
type source struct{ name, value string }

// reader is one run of FromEnv.
type reader struct {
	checker
	lookup   func(string) (string, bool)
	settings Settings
	warnings []Warning
}

// initial is the default; the test of the table proves that it can be read.
func (f *field) initial() reflect.Value {
	if v, err := f.parse(f.def); err == nil && f.def != "" {
		return v
	}
	return reflect.Zero(f.typ)
}

func (r *reader) warn(src source, reason string) {
	r.warnings = append(r.warnings, Warning{Key: src.name, Value: src.value, Reason: reason})
}

// set returns those of names that are set, with their values, in the given order. A nil lookup knows none.
func set(lookup func(string) (string, bool), names []string) (out []source) {
	if lookup == nil {
		return nil
	}
	for _, name := range names {
		text, _ := lookup(name)
		if text = strings.TrimSpace(text); text != "" {
			out = append(out, source{name, text})
		}
	}
	return out
}

// read fills one field from its variables, or with its default.
func (r *reader) read(f *field, unknown map[string]string) {
	dst := f.at(&r.settings)
	dst.Set(f.initial())
	given := set(r.lookup, f.names())
	if len(given) == 0 {
		r.absent(f, unknown)
		return
	}
	values := r.parseAll(f, given)
	if r.bad[f.name] {
		return
	}
	winner := r.choose(f, given, values)
	if winner < 0 {
		return
	}
	r.written[f.name] = given[winner]
	if err := f.inRange(values[winner]); err != nil {
		r.fail(f.name, err.Error())
		return
	}
	dst.Set(values[winner])
}

// absent reports a required variable that is not set, and the misspelt name that was perhaps meant.
func (r *reader) absent(f *field, unknown map[string]string) {
	if !f.needed(r.lookup) {
		return
	}
	reason := f.missing()
	if f.name == "DMLC_NUM_WORKER" && isRole(r.lookup, stepvan.RoleScheduler) {
		reason += "; a cluster of peers needs STEPVAN_NUM_PEER instead"
	}
	if wrong := unknown[f.name]; wrong != "" {
		reason += "; did you mean it when you set " + text.Cut(wrong) + "?"
	}
	r.fail(f.name, reason)
}

// parseAll reads every variable of a row, so that each mistake is named.
func (r *reader) parseAll(f *field, given []source) []reflect.Value {
	values := make([]reflect.Value, len(given))
	for i, src := range given {
		v, err := f.parse(src.value)
		if err != nil {
			r.mistake(f.name, src, err.Error())
		}
		if slices.Contains(f.misspelt, src.name) {
			r.warn(src, "is misspelt but accepted: write "+f.name)
		}
		values[i] = v
	}
	return values
}

// choose returns the index of the variable that counts. Variables of one row that
// say different things are an error, save that STEPVAN_VAN wins over its aliases.
func (r *reader) choose(f *field, given []source, values []reflect.Value) int {
	if f.typ == reflect.TypeFor[Van]() {
		return r.chooseVan(given, values)
	}
	for i := 1; i < len(given); i++ {
		if !values[i].Equal(values[0]) {
			r.contradict(f, given[i], given[0])
			return -1
		}
	}
	return 0
}

func (r *reader) contradict(f *field, a, b source) {
	r.mistake(f.name, a, "contradicts "+b.name+"="+text.Cut(b.value)+": unset one of them")
}

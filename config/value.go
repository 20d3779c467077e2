package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"time"
)

var (
	bytesType    = reflect.TypeFor[Bytes]()
	durationType = reflect.TypeFor[time.Duration]()
)

// parse turns the text of a variable into a value of the row's type. The error
// says what the text must be; limits are checked by inRange.
func (f *field) parse(text string) (reflect.Value, error) {
	var value any
	var err error
	switch {
	case f.typ == bytesType:
		value, err = ParseBytes(text)
	case f.typ == durationType:
		value, err = parseDuration(text, f.unit)
	case f.typ.Kind() == reflect.Int:
		if value, err = strconv.Atoi(text); err != nil {
			err = fmt.Errorf("must be a whole number from %s to %s", f.min, f.max)
		}
	case f.typ.Kind() == reflect.Bool:
		value, err = parseBool(text)
	default:
		value, err = f.word(text)
	}
	return reflect.ValueOf(value).Convert(f.typ), err
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "1", "true", "yes", "on":
		return true, nil
	case "0", "false", "no", "off":
		return false, nil
	}
	return false, errors.New("must be 1 or 0")
}

// word maps a text to one of the row's values; rows without values take any text.
func (f *field) word(text string) (string, error) {
	if len(f.values) == 0 {
		return text, nil
	}
	if w, ok := f.words[strings.ToLower(text)]; ok {
		return w, nil
	}
	err := "must be one of " + strings.Join(f.values, ", ")
	if near := nearest(strings.ToLower(text), maps.Keys(f.words)); near != "" {
		err += "; did you mean " + f.words[near] + "?"
	}
	return "", errors.New(err)
}

// format writes a value so that parse reads it back.
func (f *field) format(v reflect.Value) string {
	switch {
	case f.typ == bytesType:
		return Bytes(v.Int()).String()
	case f.typ == durationType:
		return formatDuration(time.Duration(v.Int()))
	case f.typ.Kind() == reflect.Int:
		return strconv.FormatInt(v.Int(), 10)
	case f.typ.Kind() == reflect.Bool:
		if v.Bool() {
			return "1"
		}
		return "0"
	default:
		return v.String()
	}
}

// inRange checks a value against the row's limits or words.
func (f *field) inRange(v reflect.Value) error {
	if f.typ.Kind() == reflect.String {
		if v.String() == "" && f.required {
			return errors.New(f.missing())
		}
		_, err := f.word(v.String())
		return err
	}
	if f.min == "" {
		return nil
	}
	if v.Int() < f.limit(f.min) || v.Int() > f.limit(f.max) {
		return fmt.Errorf("must be from %s to %s", f.min, f.max)
	}
	return nil
}

// limit reads a min or max tag; the test of the table proves that all can be read.
func (f *field) limit(text string) int64 {
	v, err := f.parse(text)
	if err != nil {
		return 0
	}
	return v.Int()
}

// missing says what to set when a required variable is not set.
func (f *field) missing() string {
	if len(f.values) > 0 {
		return "is not set: set it to one of " + strings.Join(f.values, ", ")
	}
	what, _, _ := strings.Cut(strings.TrimSuffix(f.doc, "."), ". ")
	return "is not set: set it to the " + strings.ToLower(what[:1]) + what[1:]
}

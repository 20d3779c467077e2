package style

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxWords   = 30  // of a sentence
	maxColumns = 120 // of a line of prose; a tab counts as 4
)

// finding is a place that breaks a rule.
type finding struct {
	path string
	line int
	rule string // "word", "sentence" or "column"
	what string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s: %s", f.path, f.line, f.rule, f.what) }

// passage is a piece of prose: a comment, a paragraph, a list item, a text for people.
type passage struct {
	path  string
	line  int // of its beginning
	lines []string
	short bool // a text of the program: its sentences count, its lines do not
}

// findings holds the prose of a file against the rules.
func findings(f *file) (found []finding) {
	for _, p := range passages(f) {
		found = append(found, p.words()...)
		found = append(found, p.sentences()...)
	}
	found = append(found, columns(f)...)
	return append(found, identifiers(f)...)
}

// passages collects the prose of a file, by its language.
func passages(f *file) []passage {
	switch filepath.Ext(f.path) {
	case ".go":
		return goPassages(f)
	case ".md":
		return paragraphs(f.path, 1, prosaic(f.text))
	case ".golden":
		return paragraphs(f.path, 1, strings.Split(f.text, "\n"))
	case ".py", ".pyi":
		return scriptPassages(f, docstring)
	case ".c", ".h", ".cc":
		return cPassages(f)
	}
	return scriptPassages(f, nil)
}

// goPassages are the comments of a file in Go, and the texts that its program shows.
func goPassages(f *file) (all []passage) {
	for _, group := range f.syntax.Comments {
		var lines []string
		for _, c := range group.List {
			if directive.MatchString(c.Text) {
				continue
			}
			lines = append(lines, strings.Split(bare(c.Text), "\n")...)
		}
		all = append(all, paragraphs(f.path, f.fset.Position(group.Pos()).Line, lines)...)
	}
	if f.test() {
		return all
	}
	tags := map[*ast.BasicLit]bool{}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			tags[n.Tag] = true
		case *ast.BasicLit:
			s, err := strconv.Unquote(n.Value)
			switch {
			case err != nil || n.Kind != token.STRING:
			case tags[n]: // its values document a setting or a flag
				for _, value := range tagValue.FindAllStringSubmatch(s, -1) {
					text, _ := strconv.Unquote(value[1])
					all = append(all, texts(f, n, text)...)
				}
			default:
				all = append(all, texts(f, n, s)...)
			}
		}
		return true
	})
	return all
}

// tagValue finds the values of a struct tag.
var tagValue = regexp.MustCompile(`\w+:("(?:[^"\\]|\\.)*")`)

// texts is the prose of a string at l: a string of several words is for people.
func texts(f *file, l *ast.BasicLit, s string) []passage {
	if len(strings.Fields(s)) < 4 || strings.Contains(s, "SPDX") {
		return nil
	}
	found := paragraphs(f.path, f.fset.Position(l.Pos()).Line, strings.Split(s, "\n"))
	for i := range found {
		found[i].short = true
	}
	return found
}

var directive = regexp.MustCompile(`^//(go:|nolint|lint:|line |export |#|\s*\+build|\s*\+checklocks)`)

// bare is a comment without its marks.
func bare(comment string) string {
	if text, ok := strings.CutPrefix(comment, "//"); ok {
		return strings.TrimPrefix(text, " ")
	}
	text := strings.TrimSuffix(strings.TrimPrefix(comment, "/*"), "*/")
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		line = strings.TrimPrefix(line, "*")
		lines[i] = strings.TrimPrefix(line, " ")
	}
	return strings.Join(lines, "\n")
}

// cPassages are the comments of a file in C.
func cPassages(f *file) (all []passage) {
	for _, at := range cComment.FindAllStringIndex(f.text, -1) {
		line := 1 + strings.Count(f.text[:at[0]], "\n")
		all = append(all, paragraphs(f.path, line, strings.Split(bare(f.text[at[0]:at[1]]), "\n"))...)
	}
	return all
}

var cComment = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)

// docstring finds texts between three quotes.
var docstring = regexp.MustCompile(`(?s)"""(.*?)"""`)

// scriptPassages are the comments that begin with #, and what blocks finds.
func scriptPassages(f *file, blocks *regexp.Regexp) (all []passage) {
	var lines []string
	first, n := 0, 0
	flush := func() {
		if len(lines) > 0 {
			all = append(all, paragraphs(f.path, first, lines)...)
		}
		lines = nil
	}
	for s := bufio.NewScanner(strings.NewReader(f.text)); s.Scan(); {
		n++
		text, ok := strings.CutPrefix(strings.TrimSpace(s.Text()), "# ")
		if !ok {
			flush()
			continue
		}
		if len(lines) == 0 {
			first = n
		}
		lines = append(lines, text)
	}
	flush()
	if blocks == nil {
		return all
	}
	for _, at := range blocks.FindAllStringSubmatchIndex(f.text, -1) {
		if before := f.text[strings.LastIndexByte(f.text[:at[0]], '\n')+1 : at[0]]; strings.TrimSpace(before) != "" {
			continue // a text of the program, such as a program that a test runs
		}
		line := 1 + strings.Count(f.text[:at[0]], "\n")
		all = append(all, paragraphs(f.path, line, strings.Split(f.text[at[2]:at[3]], "\n"))...)
	}
	return all
}

var (
	listItem = regexp.MustCompile(`^\s*([-*+]|\d+\.)\s+`)
	heading  = regexp.MustCompile(`^#+ `)
)

// paragraphs cuts lines at empty lines, headings, list items, rows of tables and code, and leaves code out.
func paragraphs(path string, first int, lines []string) (all []passage) {
	var p passage
	flush := func() {
		if len(p.lines) > 0 {
			all = append(all, p)
		}
		p = passage{}
	}
	add := func(i int, line string) {
		if len(p.lines) == 0 {
			p.path, p.line = path, first+i
		}
		p.lines = append(p.lines, line)
	}
	blank := true
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "":
			flush()
		case strings.HasPrefix(trimmed, "|"): // a row: each cell is a text of its own
			flush()
			for _, cell := range strings.Split(strings.ReplaceAll(trimmed, `\|`, "/"), "|") {
				add(i, cell)
				flush()
			}
		case heading.MatchString(line):
			flush()
			add(i, heading.ReplaceAllString(line, ""))
			flush()
		case listItem.MatchString(line):
			flush()
			add(i, listItem.ReplaceAllString(line, ""))
		case blank && (strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "    ")): // code
			continue
		default:
			add(i, line)
		}
		blank = trimmed == "" || blank && len(p.lines) == 0
	}
	flush()
	return all
}

// refused are words that the house does not use, and what it writes instead.
var refused = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b(who|whom|whoever)\b`), `"the node that", "the caller"`},
	{regexp.MustCompile(`(?i)\b(is|are|was|were|be) none\b`), "say what is missing"},
	{regexp.MustCompile(`(?i)\b(to be had|can be had|be had|is to be had)\b`), `"available"`},
	{regexp.MustCompile(`(?i)\b(goes|go|going|went) on\b`), `"continues"`},
	{regexp.MustCompile(`(?i)\bbut for\b`), `"except"`},
	{regexp.MustCompile(`(?i)\b(lets?|letting) go\b`), `"releases"`},
	{regexp.MustCompile(`(?i)\b(is|are) (that|those) of\b`), "name the thing"},
	{regexp.MustCompile(`(?i)\b(its|their|his) kin\b`), "name them"},
	{regexp.MustCompile(`(?i)\bwhat there is\b`), "name it"},
	{regexp.MustCompile(`(?i)\b(has|have|had) (it|them) not\b`), `"does not have"`},
	{regexp.MustCompile(`(?i)\b(has|have|had) not (the|a|an|any)\b`), `"does not have"`},
	{regexp.MustCompile(`(?i)\bnone (is|are|was|were) there\b`), "say what is missing"},
	{regexp.MustCompile(`(?i)\bcan be said of\b`), "say what it is"},
	{regexp.MustCompile(`(?i)\buntil which\b`), "two sentences"},
	{regexp.MustCompile(`(?i)\b(previously|issue #\d+)`), "git has the history"},
	{odd, "plain words"},
	{regexp.MustCompile(`(?i)\b(hitherto|thereof|whereof|therein|wherein|thereby|whereby|lest|forthwith|henceforth)\b`), "plain words"},
}

// isNo finds `is no program`, and leaves `there is no program` alone.
var isNo = regexp.MustCompile(`(?i)(\bthere )?\b(is|are|was|were) no \w+`)

func (p *passage) words() (found []finding) {
	for i, line := range p.lines {
		line = codeSpan.ReplaceAllString(line, "`x`")
		say := func(word, instead string) {
			found = append(found, finding{p.path, p.at(i), "word", fmt.Sprintf("%q: write %s", word, instead)})
		}
		for _, r := range refused {
			if w := r.pattern.FindString(line); w != "" {
				say(w, r.instead)
			}
		}
		for _, m := range isNo.FindAllStringSubmatch(line, -1) {
			if m[1] == "" {
				say(m[0], `"is not a"`)
			}
		}
	}
	return found
}

// at is the line of the file; a text of the program has the line of its beginning.
func (p *passage) at(i int) int {
	if p.short {
		return p.line
	}
	return p.line + i
}

// address is left out of sentences and lines.
var address = regexp.MustCompile(`https?://\S+`)

func (p *passage) sentences() (found []finding) {
	text := strings.Join(p.lines, " ")
	text = address.ReplaceAllString(codeSpan.ReplaceAllString(text, "X"), "X")
	for _, s := range split(text) {
		if n := len(strings.FieldsFunc(s, notOfWord)); n > maxWords {
			found = append(found, finding{p.path, p.line, "sentence", fmt.Sprintf("%d words (want at most %d): %s", n, maxWords, beginning(s))})
		}
	}
	return found
}

// notOfWord separates words. A number with its unit or sign is one.
func notOfWord(r rune) bool {
	return unicode.IsSpace(r) || strings.ContainsRune("()[]{}\"“”,;:|=/", r)
}

// split cuts a text after the marks that end a sentence.
func split(text string) (sentences []string) {
	first := 0
	for i, r := range text {
		if r != '.' && r != '!' && r != '?' {
			continue
		}
		rest := strings.TrimLeft(text[i+1:], `")'*_`)
		if rest == "" || rest[0] != ' ' {
			continue
		}
		next, _ := utf8.DecodeRuneInString(strings.TrimLeft(rest, ` "'(*_`+"`["))
		if unicode.IsLower(next) && r == '.' {
			continue // e.g. this one
		}
		sentences = append(sentences, text[first:i+1])
		first = i + 1
	}
	return append(sentences, text[first:])
}

func beginning(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}

var (
	comment = map[string]*regexp.Regexp{
		".go": regexp.MustCompile(`^\s*//`), ".c": regexp.MustCompile(`^\s*(//|/?\*)`), ".h": regexp.MustCompile(`^\s*(//|/?\*)`),
		".cc": regexp.MustCompile(`^\s*(//|/?\*)`), ".py": regexp.MustCompile(`^\s*(#|""")`), ".sh": regexp.MustCompile(`^\s*#`), "": regexp.MustCompile(`^\s*#`),
	}
	row = regexp.MustCompile(`^\s*\|`)
)

// columns finds lines of prose that are too long: comments, and documents, except tables, code and addresses.
func columns(f *file) (found []finding) {
	ext := filepath.Ext(f.path)
	lines := strings.Split(f.text, "\n")
	if ext == ".md" {
		lines = prosaic(f.text)
	}
	output := false // of an example, which is a program's
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		output = strings.HasPrefix(trimmed, "//") && (output || trimmed == "// Output:")
		if output {
			continue
		}
		prose := ext == ".md" && !row.MatchString(line) || comment[ext] != nil && comment[ext].MatchString(line)
		if !prose || address.MatchString(line) || directive.MatchString(trimmed) {
			continue
		}
		if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); n > maxColumns {
			found = append(found, finding{f.path, i + 1, "column", fmt.Sprintf("%d columns (want at most %d)", n, maxColumns)})
		}
	}
	return found
}

// odd are words that only their author understood, in prose, and in names such as `pendingKnocks`.
var odd = regexp.MustCompile(`(?i)\b((un)?haunt(s|ed)?|heirs?|knock(s|ed|ing)?|crews?|naps?|doz(e|es|ing)|rous(e|es|ed|ing)|wayless|errands?|parcels?|` +
	`enlist(s|ed)?|abstain(s|ed)?|courtesy|linger(s|ing)?|bury|buries|deafen(s|ed)?|foul(s|ed)?|begs?|begging|hungry|relen[dt]|unlent|` +
	`verdicts?|nudg(e|es|ed)|kick(s|ed)?|stir(s|red)?|surrender(s|ed)?|pursu(e|es|ed)|doom(s|ed)?|deserted|kin)\b`)

// misleading are names that say something else than what they name, or name several things. As words they are plain.
var misleading = regexp.MustCompile(`^(aim|badge|bell|briefly|census|company|conductor|crowd|desk|discharge|ease|face|fresh|greeted|grounds|` +
	`hear|judge|land|meet|meetings|mild|notice|outlive|outlook|parting|plainly|press|remains|retract|rooms|seat|` +
	`settleDown|snap|spinOn|strangers?|takeBack|team|tight|together|told|ways?)$`)

// identifiers finds odd and misleading names: those that a file in Go declares, and the odd ones in another language.
func identifiers(f *file) (found []finding) {
	check := func(line int, name string) {
		if misleading.MatchString(name) || odd.MatchString(wordStart.ReplaceAllString(name, " $0")) {
			found = append(found, finding{f.path, line, "word", "the name " + name + ": say what it does"})
		}
	}
	if f.syntax == nil {
		if strings.HasSuffix(f.path, ".md") || strings.HasSuffix(f.path, ".golden") {
			return nil
		}
		for i, line := range strings.Split(f.text, "\n") {
			for _, name := range snakeName.FindAllString(line, -1) {
				check(i+1, name)
			}
		}
		return found
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		var ids []*ast.Ident
		switch n := n.(type) {
		case *ast.FuncDecl:
			ids = []*ast.Ident{n.Name}
		case *ast.TypeSpec:
			ids = []*ast.Ident{n.Name}
		case *ast.ValueSpec:
			ids = n.Names
		case *ast.Field:
			ids = n.Names
		case *ast.AssignStmt:
			for _, x := range n.Lhs {
				if id, ok := x.(*ast.Ident); ok && n.Tok == token.DEFINE {
					ids = append(ids, id)
				}
			}
		}
		for _, id := range ids {
			check(f.fset.Position(id.Pos()).Line, id.Name)
		}
		return true
	})
	return found
}

var (
	wordStart = regexp.MustCompile(`[A-Z]|_`)
	snakeName = regexp.MustCompile(`\b[a-z]+(_[a-z]+)+\b`)
)

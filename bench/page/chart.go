package page

// chart is lines over an axis of numbers. page.js draws it from its JSON.
type chart struct {
	Title, Note string `json:"-"`
	X           axis   `json:"x"`
	Y           axis   `json:"y"`
	Lines       []line `json:"lines"`
}

type axis struct {
	Name   string  `json:"name"`
	Log    bool    `json:"log"`
	Format string  `json:"format"` // name of a function in page.js
	Step   float64 `json:"step,omitempty"`
}

type line struct {
	Name   string       `json:"name"`
	Colour string       `json:"colour"`
	Dash   string       `json:"dash"`   // solid, dashed, dotted
	Hidden bool         `json:"hidden"` // until a click on the legend
	Points [][2]float64 `json:"points"`
}

// add adds a line that has points.
func (c *chart) add(l line) {
	if len(l.Points) > 0 {
		c.Lines = append(c.Lines, l)
	}
}

func (c *chart) empty() bool { return len(c.Lines) == 0 }

package compare

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/stepvan/stepvan/bench"
	"github.com/stepvan/stepvan/internal/errs"
)

// longestLine is the limit of a report in bytes, enough for 10,000 rounds.
const longestLine = 8 << 20

// Read reads reports, one JSON object per line. It skips empty lines. The error names the line.
func Read(r io.Reader) (reports []*bench.Report, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	number := 0
	for lines.Scan() {
		number++
		if len(lines.Bytes()) == 0 {
			continue
		}
		one := &bench.Report{}
		if err := json.Unmarshal(lines.Bytes(), one); err != nil {
			return nil, errs.Invalid("line %d is not a report (%v): write the file with stepvan bench --json", number, err)
		}
		if one.Workload == "" || one.Van == "" {
			return nil, errs.Invalid("line %d is not a report, because it names no workload and van: write the file with stepvan bench --json", number)
		}
		reports = append(reports, one)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", number+1, err)
	}
	if len(reports) == 0 {
		return nil, errs.Invalid("it has no report: write the file with stepvan bench --json")
	}
	return reports, nil
}

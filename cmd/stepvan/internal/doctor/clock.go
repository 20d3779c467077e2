package doctor

import "strings"

// checkClock finds clock sources that are slow to read. Each request takes eight timestamps.
func (d host) checkClock() {
	const dir = "sys/devices/system/clocksource/clocksource0/"
	source := d.text(dir + "current_clocksource")
	slow := source == "hpet" || source == "acpi_pm" || source == "jiffies" || source == "pit" || source == "refined-jiffies"
	switch {
	case source == "":
	case slow:
		d.warn("clock", source+" takes microseconds to read, or is coarse", "echo "+better(d.text(dir+"available_clocksource"))+" > /"+dir+"current_clocksource; if the kernel refuses it, boot with tsc=reliable, or set STEPVAN_TRACE_EVENTS=0")
	default:
		d.ok("clock", source)
	}
}

// better is the available clock source that is best, tsc when none is known.
func better(available string) string {
	for _, want := range []string{"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"} {
		for have := range strings.FieldsSeq(available) {
			if have == want {
				return want
			}
		}
	}
	return "tsc"
}

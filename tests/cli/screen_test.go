//go:build unix

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/weirmq/weir/tests/weirtest"
)

// screen is a terminal as far as the program under test draws on it: the cells, without
// colours.
type screen struct {
	mu       sync.Mutex
	cells    [][]rune
	row, col int
	top, end int // of what scrolls
	last     rune
	alt      bool // the other screen is shown
	raw      []byte
	rest     []byte // of a sequence that is not complete
}

func (s *screen) resize(rows, cols int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.cells
	s.cells, s.top, s.end = make([][]rune, rows), 0, rows-1
	for i := range s.cells {
		s.cells[i] = blanks(cols)
		if i < len(old) {
			copy(s.cells[i], old[i])
		}
	}
	s.row, s.col = min(s.row, rows-1), min(s.col, cols-1)
}

func blanks(n int) []rune { return []rune(strings.Repeat(" ", n)) }

// Write draws.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw = append(s.raw, p...)
	in := append(s.rest, p...)
	for len(in) > 0 {
		n := s.step(in)
		if n == 0 {
			break
		}
		in = in[n:]
	}
	s.rest = append([]byte(nil), in...)
	return len(p), nil
}

// step takes one character or sequence and returns its length, 0 if it is not complete.
func (s *screen) step(in []byte) int {
	switch in[0] {
	case '\x1b':
		return s.escape(in)
	case '\r':
		s.col = 0
	case '\n':
		s.down()
	case '\b':
		s.col = max(0, s.col-1)
	case '\t':
		s.col = min((s.col/8+1)*8, len(s.cells[0])-1)
	default:
		if in[0] < 0x20 {
			return 1
		}
		if !utf8.FullRune(in) {
			return 0
		}
		r, n := utf8.DecodeRune(in)
		s.put(r)
		return n
	}
	return 1
}

func (s *screen) put(r rune) {
	if s.col >= len(s.cells[0]) {
		s.col = 0
		s.down()
	}
	s.cells[s.row][s.col], s.last = r, r
	s.col++
}

func (s *screen) down() {
	if s.row == s.end {
		s.scroll(s.top, 1)
		return
	}
	s.row = min(s.row+1, len(s.cells)-1)
}

// scroll moves the lines from one to the end of the region up by n, or down.
func (s *screen) scroll(from, n int) {
	for range max(n, -n) {
		if n > 0 {
			copy(s.cells[from:s.end+1], s.cells[from+1:s.end+1])
			s.cells[s.end] = blanks(len(s.cells[0]))
		} else {
			copy(s.cells[from+1:s.end+1], s.cells[from:s.end])
			s.cells[from] = blanks(len(s.cells[0]))
		}
	}
}

func (s *screen) escape(in []byte) int {
	if len(in) < 2 {
		return 0
	}
	switch in[1] {
	case '[':
		for i := 2; i < len(in); i++ {
			if in[i] >= 0x40 && in[i] <= 0x7e {
				s.control(string(in[2:i]), in[i])
				return i + 1
			}
		}
		return 0
	case ']', 'P', '_':
		for i := 2; i < len(in); i++ {
			if in[i] == '\a' {
				return i + 1
			}
			if in[i] == '\\' && in[i-1] == '\x1b' {
				return i + 1
			}
		}
		return 0
	case 'M':
		if s.row == s.top {
			s.scroll(s.top, -1)
		} else {
			s.row = max(0, s.row-1)
		}
	case '(', ')':
		return 3
	}
	return 2
}

// control runs a control sequence.
func (s *screen) control(args string, final byte) {
	if strings.HasPrefix(args, "?") {
		if strings.Contains(args, "1049") {
			s.alt = final == 'h'
			s.clear(0, len(s.cells))
		}
		return
	}
	if args != "" && (args[0] < '0' || args[0] > ';') {
		return
	}
	var n [2]int
	for i, part := range strings.SplitN(args, ";", 2) {
		n[i], _ = strconv.Atoi(part)
	}
	one, line, width := max(n[0], 1), s.cells[s.row], len(s.cells[0])
	switch final {
	case 'A':
		s.row = max(0, s.row-one)
	case 'B', 'e':
		s.row = min(len(s.cells)-1, s.row+one)
	case 'C', 'a':
		s.col = min(width-1, s.col+one)
	case 'D':
		s.col = max(0, s.col-one)
	case 'E':
		s.row, s.col = min(len(s.cells)-1, s.row+one), 0
	case 'F':
		s.row, s.col = max(0, s.row-one), 0
	case 'G', '`':
		s.col = min(width, one) - 1
	case 'd':
		s.row = min(len(s.cells), one) - 1
	case 'H', 'f':
		s.row, s.col = min(len(s.cells), one)-1, min(width, max(n[1], 1))-1
	case 'I':
		s.col = min((s.col/8+one)*8, width-1)
	case 'Z':
		s.col = max(0, ((s.col+7)/8-one)*8)
	case 'J':
		s.erase(n[0])
	case 'K':
		switch n[0] {
		case 0:
			copy(line[min(s.col, width):], blanks(width))
		case 1:
			copy(line[:min(s.col+1, width)], blanks(width))
		case 2:
			copy(line, blanks(width))
		}
	case 'X':
		copy(line[min(s.col, width):min(width, s.col+one)], blanks(width))
	case 'P':
		copy(line[s.col:], append(append([]rune{}, line[min(width, s.col+one):]...), blanks(one)...))
	case '@':
		copy(line[s.col:], append(blanks(one), line[s.col:]...))
	case 'b':
		for range one {
			s.put(s.last)
		}
	case 'L':
		s.scroll(s.row, -one)
	case 'M':
		s.scroll(s.row, one)
	case 'S':
		s.scroll(s.top, one)
	case 'T':
		s.scroll(s.top, -one)
	case 'r':
		s.top, s.end = max(n[0], 1)-1, len(s.cells)-1
		if n[1] > 0 {
			s.end = min(n[1], len(s.cells)) - 1
		}
		s.row, s.col = 0, 0
	}
}

func (s *screen) erase(what int) {
	width := len(s.cells[0])
	switch what {
	case 0:
		copy(s.cells[s.row][min(s.col, width):], blanks(width))
		s.clear(s.row+1, len(s.cells))
	case 1:
		copy(s.cells[s.row][:min(s.col+1, width)], blanks(width))
		s.clear(0, s.row)
	default:
		s.clear(0, len(s.cells))
	}
}

func (s *screen) clear(from, to int) {
	for i := from; i < to; i++ {
		s.cells[i] = blanks(len(s.cells[0]))
	}
}

// lines are what is on the screen.
func (s *screen) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]string, len(s.cells))
	for i, line := range s.cells {
		all[i] = strings.TrimRight(string(line), " ")
	}
	return all
}

// terminal runs weir in a terminal.
type terminal struct {
	*testing.T
	screen
	tty, own *os.File // the program's end, and the test's
	before   string   // its settings
	cmd      *exec.Cmd
	ended    chan struct{}
	drawn    chan struct{}
}

func startTerminal(t *testing.T, env []string, rows, cols int, args ...string) *terminal {
	t.Helper()
	x := &terminal{T: t, ended: make(chan struct{}), drawn: make(chan struct{})}
	var err error
	if x.own, x.tty, err = pty.Open(); err != nil {
		t.Fatal(err)
	}
	x.size(rows, cols)
	x.before = x.settings()
	x.cmd = exec.Command(weirtest.Binary(t), args...)
	x.cmd.Env = append(os.Environ(), append([]string{"TERM=xterm-256color", "NO_COLOR="}, env...)...)
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = x.tty, x.tty, x.tty
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(x.ended); _ = x.cmd.Wait() }()
	go func() {
		defer close(x.drawn)
		for buf := make([]byte, 1<<14); ; {
			n, err := x.own.Read(buf)
			if err != nil {
				return
			}
			_, _ = x.Write(buf[:n])
		}
	}()
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		<-x.ended
		_ = x.tty.Close()
		_ = x.own.Close()
		<-x.drawn
		if t.Failed() {
			t.Logf("the screen:\n%s", strings.Join(x.lines(), "\n"))
		}
	})
	return x
}

func (x *terminal) size(rows, cols int) {
	x.resize(rows, cols)
	if err := pty.Setsize(x.own, &pty.Winsize{Rows: uint16(rows), Cols: uint16(cols)}); err != nil {
		x.Fatal(err)
	}
}

// settings are what the program may change of the terminal, and has to restore.
func (x *terminal) settings() string {
	cmd := exec.Command("stty", "-g")
	cmd.Stdin = x.tty
	out, err := cmd.Output()
	if err != nil {
		x.Fatal(err)
	}
	return string(out)
}

func (x *terminal) press(keys string) {
	x.Helper()
	if _, err := x.own.WriteString(keys); err != nil {
		x.Fatal(err)
	}
}

// shows waits until all texts are on the screen, each in one line.
func (x *terminal) shows(texts ...string) {
	x.Helper()
	shown := func() bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !x.has(text) })
	}
	eventually(x.T, fmt.Sprintf("%q on the screen", texts), shown)
}

// has reports whether a line has a text, runs of blanks counting as one.
func (x *terminal) has(text string) bool {
	for _, line := range x.lines() {
		if strings.Contains(strings.Join(strings.Fields(line), " "), text) {
			return true
		}
	}
	return false
}

// order are the first words of the lines that begin with one of names.
func (x *terminal) order(names ...string) string {
	var found []string
	for _, line := range x.lines() {
		words := strings.Fields(strings.TrimPrefix(line, ">"))
		for _, name := range names {
			if len(words) > 0 && words[0] == name {
				found = append(found, name)
			}
		}
	}
	return strings.Join(found, " ")
}

// restored waits for the end and checks that the terminal is as it was.
func (x *terminal) restored(code int) {
	x.Helper()
	select {
	case <-x.ended:
	case <-time.After(time.Minute):
		x.Fatal("it does not end")
	}
	if got := x.cmd.ProcessState.ExitCode(); got != code {
		x.Errorf("exit code %d, want %d", got, code)
	}
	if after := x.settings(); after != x.before {
		x.Errorf("the terminal's settings are\n%s, were\n%s", after, x.before)
	}
	eventually(x.T, "the first screen, with a cursor", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		raw := string(x.raw)
		return !x.alt && strings.LastIndex(raw, "\x1b[?25h") > strings.LastIndex(raw, "\x1b[?25l")
	})
}

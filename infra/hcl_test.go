package infra_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// block is a block of a .tf file, or the whole file: type and labels, attributes as they are written, blocks within.
type block struct {
	Type   string
	Labels []string
	Attrs  map[string]string
	Blocks []*block
}

// parseDir reads all .tf files of a directory as one.
func parseDir(t testing.TB, dir string) *block {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.tf"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no .tf files: %v", dir, err)
	}
	all := &block{Attrs: map[string]string{}}
	for _, f := range files {
		text, err := os.ReadFile(f)
		check(t, err)
		one, err := parse(string(text))
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		all.Blocks = append(all.Blocks, one.Blocks...)
	}
	return all
}

// find returns the blocks of a type whose labels begin with these.
func (b *block) find(kind string, labels ...string) (found []*block) {
	for _, x := range b.Blocks {
		if x.Type == kind && len(x.Labels) >= len(labels) && slices.Equal(x.Labels[:len(labels)], labels) {
			found = append(found, x)
		}
	}
	return found
}

// only is the one block of that kind.
func (b *block) only(t testing.TB, kind string, labels ...string) *block {
	t.Helper()
	found := b.find(kind, labels...)
	if len(found) != 1 {
		t.Fatalf("%d blocks %s %q, 1 is wanted", len(found), kind, labels)
	}
	return found[0]
}

// parse reads as much of Terraform's syntax as terraform fmt leaves: blocks, attributes whose expressions may go over lines within brackets or quotes, comments.
func parse(text string) (*block, error) {
	p := &parser{text: text}
	return p.body(&block{Attrs: map[string]string{}}, true)
}

type parser struct {
	text string
	at   int
}

func (p *parser) body(b *block, file bool) (*block, error) {
	for {
		p.space(true)
		switch {
		case p.at == len(p.text) && file:
			return b, nil
		case p.at == len(p.text):
			return nil, fmt.Errorf("block %s %q has no end", b.Type, b.Labels)
		case p.text[p.at] == '}' && !file:
			p.at++
			return b, nil
		}
		name := p.word()
		if name == "" {
			return nil, fmt.Errorf("%.30q: a name is wanted", p.text[p.at:])
		}
		inner := &block{Type: name, Attrs: map[string]string{}}
		for p.space(false); p.at < len(p.text) && p.text[p.at] == '"'; p.space(false) {
			label, err := p.quoted()
			if err != nil {
				return nil, err
			}
			inner.Labels = append(inner.Labels, label[1:len(label)-1])
		}
		switch rest := p.text[p.at:]; {
		case strings.HasPrefix(rest, "{"):
			p.at++
			if _, err := p.body(inner, false); err != nil {
				return nil, err
			}
			b.Blocks = append(b.Blocks, inner)
		case strings.HasPrefix(rest, "=") && len(inner.Labels) == 0:
			p.at++
			value, err := p.expression()
			if err != nil {
				return nil, fmt.Errorf("attribute %s: %w", name, err)
			}
			b.Attrs[name] = value
		default:
			return nil, fmt.Errorf("after %s: %.30q", name, rest)
		}
	}
}

// space passes spaces and comments, and line ends too if they are told to.
func (p *parser) space(lines bool) {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == ' ' || c == '\t' || c == '\n' && lines:
			p.at++
		case c == '#' || strings.HasPrefix(p.text[p.at:], "//"):
			for p.at < len(p.text) && p.text[p.at] != '\n' {
				p.at++
			}
		default:
			return
		}
	}
}

func (p *parser) word() string {
	start := p.at
	for p.at < len(p.text) && strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", rune(p.text[p.at])) {
		p.at++
	}
	return p.text[start:p.at]
}

// quoted passes a string with its quotes, and what is interpolated in it.
func (p *parser) quoted() (string, error) {
	start, depth := p.at, 0
	for p.at++; p.at < len(p.text); p.at++ {
		switch rest := p.text[p.at:]; {
		case rest[0] == '\\':
			p.at++
		case strings.HasPrefix(rest, "${"):
			depth++
		case rest[0] == '}' && depth > 0:
			depth--
		case rest[0] == '"' && depth > 0:
			if _, err := p.quoted(); err != nil {
				return "", err
			}
			p.at--
		case rest[0] == '"':
			p.at++
			return p.text[start:p.at], nil
		}
	}
	return "", fmt.Errorf("%.30q: a string without end", p.text[start:])
}

// expression reads to the end of the line on which all brackets are closed, without comments.
func (p *parser) expression() (string, error) {
	var out strings.Builder
	for depth := 0; p.at < len(p.text); {
		switch c := p.text[p.at]; {
		case c == '"':
			s, err := p.quoted()
			if err != nil {
				return "", err
			}
			out.WriteString(s)
			continue
		case c == '#':
			p.space(false)
			continue
		case strings.HasPrefix(p.text[p.at:], "<<"):
			return "", fmt.Errorf("a heredoc, which this reader does not know")
		case strings.ContainsRune("([{", rune(c)):
			depth++
		case strings.ContainsRune(")]}", rune(c)):
			depth--
		case c == '\n' && depth == 0:
			return strings.TrimSpace(out.String()), nil
		}
		out.WriteByte(p.text[p.at])
		p.at++
	}
	return strings.TrimSpace(out.String()), nil
}

func TestParse(t *testing.T) {
	b, err := parse(`
# comment
resource "a" "b" {
  name = "x-${var.y["z"]}-\"}" # why
  list = [
    "p", # q
    { r = 1 },
  ]
  flag = true

  inner {
    n = 3
  }
}
`)
	check(t, err)
	r := b.only(t, "resource", "a", "b")
	want := map[string]string{"name": `"x-${var.y["z"]}-\"}"`, "flag": "true", "list": "[\n    \"p\", \n    { r = 1 },\n  ]"}
	for name, value := range want {
		if r.Attrs[name] != value {
			t.Errorf("%s is %q, not %q", name, r.Attrs[name], value)
		}
	}
	if len(r.Attrs) != len(want) || r.only(t, "inner").Attrs["n"] != "3" {
		t.Errorf("%+v", r)
	}
	for _, bad := range []string{`resource "a" {`, `resource "a`, "x = \"a\n", "=", "a b", "x = <<EOT\nEOT\n"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

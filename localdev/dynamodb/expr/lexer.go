package expr

import "strings"

type tokenType byte

const (
	tokenEnd    tokenType = iota
	tokenWord             // name or keyword
	tokenName             // #placeholder
	tokenValue            // :placeholder
	tokenIndex            // digits
	tokenSymbol           // one of ( ) [ ] , . + - = < <= <> > >=
)

type token struct {
	kind       tokenType
	text       string
	start, end int
}

// is reports whether the token is this symbol or, in any case of letters, this keyword.
func (t token) is(text string) bool {
	return t.kind == tokenSymbol && t.text == text || t.kind == tokenWord && strings.EqualFold(t.text, text)
}

// scan cuts an expression into tokens, the last of which is tokenEnd.
func scan(kind Kind, text string) ([]token, error) {
	if strings.TrimLeft(text, " \t\r\n") == "" {
		return nil, fail(kind, "The expression can not be empty;")
	}
	if len(text) > MaxLength {
		return nil, fail(kind, "Expression size has exceeded the maximum allowed size; expression size: %d", len(text))
	}
	tokens := make([]token, 0, len(text)/3+2)
	for pos := 0; pos < len(text); {
		if strings.IndexByte(" \t\r\n", text[pos]) >= 0 {
			pos++
			continue
		}
		t := scanToken(text, pos)
		if t.kind == tokenEnd {
			return nil, syntaxError(kind, text, tokens, t)
		}
		tokens = append(tokens, t)
		pos = t.end
	}
	return append(tokens, token{kind: tokenEnd, text: "<EOF>", start: len(text), end: len(text)}), nil
}

// scanToken is the token at pos; its kind is tokenEnd if no token starts there.
func scanToken(text string, pos int) token {
	c := text[pos]
	t := token{start: pos, end: pos + 1}
	switch {
	case isLetter(c):
		t.kind, t.end = tokenWord, wordEnd(text, pos)
	case isDigit(c):
		t.kind = tokenIndex
		for t.end < len(text) && isDigit(text[t.end]) {
			t.end++
		}
	case c == '#':
		t.kind, t.end = tokenName, wordEnd(text, pos+1)
	case c == ':':
		t.kind, t.end = tokenValue, wordEnd(text, pos+1)
	case strings.IndexByte("()[],.+-=", c) >= 0:
		t.kind = tokenSymbol
	case c == '<' || c == '>':
		t.kind = tokenSymbol
		if pos+1 < len(text) && (text[pos+1] == '=' || c == '<' && text[pos+1] == '>') {
			t.end++
		}
	}
	t.text = text[t.start:t.end]
	if (t.kind == tokenName || t.kind == tokenValue) && len(t.text) == 1 {
		t.kind = tokenEnd
	}
	return t
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

func wordEnd(text string, pos int) int {
	for pos < len(text) && (isLetter(text[pos]) || isDigit(text[pos])) {
		pos++
	}
	return pos
}

// syntaxError shows the token that did not fit, between the one before it and the one after it.
func syntaxError(kind Kind, text string, before []token, t token) error {
	from, to := t.start, t.end
	if len(before) > 0 {
		from = before[len(before)-1].start
	}
	rest := text[to:]
	if trimmed := strings.TrimLeft(rest, " \t\r\n"); trimmed != "" {
		next := scanToken(text, to+len(rest)-len(trimmed))
		to = next.end
	}
	return fail(kind, "Syntax error; token: \"%s\", near: \"%s\"", t.text, text[from:to])
}

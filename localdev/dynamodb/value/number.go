package value

import (
	"math/big"
	"strconv"
	"strings"
)

// Number is a decimal number of at most 38 significant digits, between 1E-130 and 9.99…E+125 in magnitude, or zero.
// Equal numbers are equal by ==. The zero Number is 0.
type Number struct {
	neg bool
	// digits are the significant digits, without zeros at either end; "" is zero.
	digits string
	// exp is the exponent of the first digit: 12.5 is digits "125", exp 1.
	exp int16
}

const (
	maxDigits = 38
	maxExp    = 125
	minExp    = -130
	// maxNumberText bounds what is parsed: leading and trailing zeros may be many, but not without end.
	maxNumberText = 1024
)

// Errors of numbers that DynamoDB does not hold. Their texts are the service's.
const (
	ErrNotANumber      Invalid = "The parameter cannot be converted to a numeric value"
	ErrNumberOverflow  Invalid = "Number overflow. Attempting to store a number with magnitude larger than supported range"
	ErrNumberUnderflow Invalid = "Number underflow. Attempting to store a number with magnitude smaller than supported range"
	ErrNumberPrecision Invalid = "Attempting to store more than 38 significant digits in a Number"
)

// Int is the number i.
func Int(i int64) Number {
	digits, neg := strings.CutPrefix(strconv.FormatInt(i, 10), "-")
	n, _ := normalise(neg, digits, len(digits)-1) // 19 digits at most
	return n
}

// ParseNumber reads decimal notation with an optional exponent. Zeros at either end carry no meaning and are
// dropped, as the service does.
func ParseNumber(s string) (Number, error) {
	if len(s) == 0 {
		return Number{}, ErrNotANumber
	}
	malformed := ErrNotANumber + Invalid(": "+s[:min(len(s), 64)])
	if len(s) > maxNumberText {
		return Number{}, malformed
	}
	rest := s
	neg := rest[0] == '-'
	if neg || rest[0] == '+' {
		rest = rest[1:]
	}
	mantissa, exponent, hasExp := cutExponent(rest)
	exp := 0
	if hasExp {
		var ok bool
		if exp, ok = parseExponent(exponent); !ok {
			return Number{}, malformed
		}
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if whole == "" && fraction == "" || !allDigits(whole) || !allDigits(fraction) {
		return Number{}, malformed
	}
	return normalise(neg, whole+fraction, exp+len(whole)-1)
}

func cutExponent(s string) (mantissa, exponent string, found bool) {
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// parseExponent reads a signed integer. What is far outside the range stays far outside it.
func parseExponent(s string) (int, bool) {
	neg := strings.HasPrefix(s, "-")
	if neg || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	if s == "" || !allDigits(s) {
		return 0, false
	}
	exp := 0
	for _, c := range []byte(s) {
		exp = min(exp*10+int(c-'0'), 1_000_000)
	}
	if neg {
		exp = -exp
	}
	return exp, true
}

func allDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// normalise makes a Number of digits whose first one has exponent exp.
func normalise(neg bool, digits string, exp int) (Number, error) {
	trimmed := strings.TrimLeft(digits, "0")
	exp -= len(digits) - len(trimmed)
	trimmed = strings.TrimRight(trimmed, "0")
	switch {
	case trimmed == "":
		return Number{}, nil
	case exp > maxExp:
		return Number{}, ErrNumberOverflow
	case exp < minExp:
		return Number{}, ErrNumberUnderflow
	case len(trimmed) > maxDigits:
		return Number{}, ErrNumberPrecision
	}
	return Number{neg: neg, digits: trimmed, exp: int16(exp)}, nil
}

// String is plain decimal notation without exponent, as the service answers it.
func (n Number) String() string { return string(n.append(nil)) }

func (n Number) append(b []byte) []byte {
	if n.digits == "" {
		return append(b, '0')
	}
	if n.neg {
		b = append(b, '-')
	}
	point := int(n.exp) + 1 // digits before the decimal point
	if point <= 0 {
		b = appendZeros(append(b, "0."...), -point)
		return append(b, n.digits...)
	}
	if point >= len(n.digits) {
		return appendZeros(append(b, n.digits...), point-len(n.digits))
	}
	b = append(append(b, n.digits[:point]...), '.')
	return append(b, n.digits[point:]...)
}

func appendZeros(b []byte, n int) []byte {
	for range n {
		b = append(b, '0')
	}
	return b
}

// Compare is negative, zero or positive as n is less than, equal to or greater than m.
func (n Number) Compare(m Number) int {
	if s, t := n.sign(), m.sign(); s != t {
		return s - t
	}
	order := int(n.exp) - int(m.exp)
	if order == 0 {
		order = strings.Compare(n.digits, m.digits)
	}
	if n.neg {
		order = -order
	}
	return order
}

func (n Number) sign() int {
	switch {
	case n.digits == "":
		return 0
	case n.neg:
		return -1
	}
	return 1
}

// Negate is -n.
func (n Number) Negate() Number {
	if n.digits != "" {
		n.neg = !n.neg
	}
	return n
}

// Add is n + m, exactly; a sum that is out of range or needs more than 38 digits is an error.
func (n Number) Add(m Number) (Number, error) {
	if a, ok := n.small(); ok {
		if b, ok := m.small(); ok {
			return Int(a + b), nil
		}
	}
	if n.digits == "" {
		return m, nil
	}
	if m.digits == "" {
		return n, nil
	}
	// Both as integers times ten to the power of the lower last digit's exponent. The exponents are within 256 of
	// each other, so this is bounded.
	low := min(n.lowest(), m.lowest())
	sum := n.scaled(low)
	sum.Add(sum, m.scaled(low))
	text, neg := strings.CutPrefix(sum.String(), "-")
	return normalise(neg, text, low+len(text)-1)
}

// small is n as a machine integer: counters are.
func (n Number) small() (int64, bool) {
	if n.digits == "" {
		return 0, true
	}
	if n.exp > 17 || n.lowest() < 0 {
		return 0, false
	}
	i := int64(0)
	for _, c := range []byte(n.digits) {
		i = i*10 + int64(c-'0')
	}
	for range n.lowest() {
		i *= 10
	}
	if n.neg {
		i = -i
	}
	return i, true
}

// lowest is the exponent of the last digit.
func (n Number) lowest() int { return int(n.exp) - len(n.digits) + 1 }

// scaled is n / 10^low as an integer; low is at most n.lowest().
func (n Number) scaled(low int) *big.Int {
	digits := appendZeros([]byte(n.digits), n.lowest()-low)
	i, _ := new(big.Int).SetString(string(digits), 10)
	if n.neg {
		i.Neg(i)
	}
	return i
}

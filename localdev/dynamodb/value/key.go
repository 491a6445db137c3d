package value

// EncodeKey turns a value that may be a key (String, Number, Binary) into bytes that sort as the values do. Values
// of different kinds do not compare: one key attribute has one kind. ok is false for other kinds.
func EncodeKey(v Value) (encoded string, ok bool) {
	switch v := v.(type) {
	case String:
		return string(v), true
	case Binary:
		return string(v), true
	case Number:
		return v.encode(), true
	}
	return "", false
}

// encode: sign (0 negative, 1 zero, 2 positive), exponent, digits. Negative numbers have everything complemented,
// and an end mark above every digit: -15 comes before -1.
func (n Number) encode() string {
	if n.digits == "" {
		return "\x01"
	}
	exp := byte(int(n.exp) - minExp)
	if !n.neg {
		return "\x02" + string([]byte{exp}) + n.digits
	}
	b := make([]byte, 0, len(n.digits)+3)
	b = append(b, 0, ^exp)
	for _, c := range []byte(n.digits) {
		b = append(b, '0'+'9'-c)
	}
	return string(append(b, 0xff))
}

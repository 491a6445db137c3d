package value

// Size is how many bytes a value counts for limits and billing, without the name that it has in an item.
func Size(v Value) int {
	switch v := v.(type) {
	case String:
		return len(v)
	case Binary:
		return len(v)
	case Number:
		return v.size()
	case StringSet:
		return sum(v, func(s String) int { return len(s) })
	case NumberSet:
		return sum(v, Number.size)
	case BinarySet:
		return sum(v, func(b Binary) int { return len(b) })
	case List:
		return 3 + sum(v, func(e Value) int { return 1 + Size(e) })
	case Map:
		return 3 + len(v) + v.ItemSize()
	}
	return 1 // Bool, Null
}

// ItemSize is the size of m as an item: its names and values, without the overhead of a nested map.
func (m Map) ItemSize() int {
	size := 0
	for name, v := range m {
		size += len(name) + Size(v)
	}
	return size
}

// size counts what the service was measured to count: a byte, one for every two digits before the decimal point and
// after it, each rounded up, and one for a minus sign. Zeros at the ends count nothing unless the point is within
// the digits.
func (n Number) size() int {
	if n.digits == "" {
		return 1
	}
	size := 1
	if n.neg {
		size++
	}
	whole := len(n.digits)
	if point := int(n.exp) + 1; point > 0 && point < len(n.digits) {
		whole = point
	}
	return size + (whole+1)/2 + (len(n.digits)-whole+1)/2
}

func sum[T any](list []T, f func(T) int) int {
	total := 0
	for _, e := range list {
		total += f(e)
	}
	return total
}

package segment

import "encoding/binary"

// readPlain reads records from the start of b for as long as they are plain, as nearly all are: no headers, a
// value, the offset delta that is next in turn, and no number of more than 3 bytes. It returns how many it has
// read and what follows them. Whatever else comes, errors included, is left to readRecord, which is slower and
// can say what it is.
//
// It is fast because it takes several numbers out of each word that it loads, and because it stores a record's
// fields one by one: a composite value would be built elsewhere and then copied.
func readPlain(b []byte, records []Record, baseTime, baseOffset, delta int64) (n int, rest []byte) {
	for i := range records {
		if len(b) < 8 {
			return i, b
		}
		word := binary.LittleEndian.Uint64(b) // length, attributes, time delta
		length, n := short(word)
		word >>= 8 * n & 63
		time, m := short(word >> 8)
		end, at := int(n)+int(length>>1), int(n+m)+1
		if length&1|word&0xff|time&tooLong != 0 || end > len(b) || at+8 > end {
			return i, b
		}
		rec := b[at:end]
		word = binary.LittleEndian.Uint64(rec) // offset delta, key length
		offset, n := short(word)
		keyLength, m := short(word >> (8 * n & 63))
		key := int(n + m)
		keyEnd := key + int(keyLength>>1) // a null key is length -1, whose code is 1
		if offset != uint64(delta)<<1 || keyLength&1 != 0 && keyLength != 1 || keyEnd+4 > len(rec) {
			return i, b
		}
		valueLength, n := short(uint64(binary.LittleEndian.Uint32(rec[keyEnd : keyEnd+4])))
		value := keyEnd + int(n)
		valueEnd := value + int(valueLength>>1)
		if valueLength&1 != 0 || valueEnd != len(rec)-1 || rec[valueEnd] != 0 { // 0 headers
			return i, b
		}
		r := &records[i]
		r.Offset = baseOffset + delta
		r.Timestamp = baseTime + unzigzag(time)
		r.Key = rec[key:keyEnd:keyEnd]
		if keyLength == 1 {
			r.Key = nil
		}
		r.Value = rec[value:valueEnd:valueEnd]
		r.Headers = nil
		delta++
		b = b[end:]
	}
	return len(records), b
}

// tooLong is what short returns for a longer varint: more than any length or delta that fits.
const tooLong = 1 << 63

// short decodes a varint of at most 3 bytes from the low end of word and says how many it takes.
func short(word uint64) (v uint64, n uint) {
	if word&0x80 == 0 {
		return word & 0x7f, 1
	}
	if word&0x8000 == 0 {
		return word&0x7f | word>>1&0x3f80, 2
	}
	if word&0x800000 == 0 {
		return word&0x7f | word>>1&0x3f80 | word>>2&0x1fc000, 3
	}
	return tooLong, 4
}

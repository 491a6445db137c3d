package segment

import "encoding/binary"

// readPlain reads records from the start of b for as long as they are plain, as nearly all are: no headers, a
// value, the offset delta that is next in turn, and no number of more than 3 bytes, time and key length of more than 2. It returns how many it has
// read and what follows them. Whatever else comes, errors included, is left to readRecord, which is slower and
// can say what it is.
//
// It is fast because it tries two bytes first for the lengths, because the compiler need not look whether each number is within b, and because it
// stores a record's fields one by one: a composite value would be built elsewhere and then copied.
func readPlain(b []byte, records []Record, baseTime, baseOffset, delta int64) (n int, rest []byte) {
	b = b[:len(b):len(b)] // so that what is known of its length is known of its capacity
	at := 0
	for n := range records {
		if len(b)-at < plainHead {
			return n, b[at:]
		}
		head := (*[plainHead]byte)(b[at:])
		word := binary.LittleEndian.Uint32(head[:])
		size, i := int(twoBytes(word)>>1), 2
		if word&0xff8081 != 0x80 { // not two bytes, or negative, or an attribute
			length, m := short(uint64(word))
			if length&1 != 0 || head[m&headMask] != 0 {
				return n, b[at:]
			}
			size, i = int(length>>1), int(m)
		}
		end := at + i + size
		i++ // the attributes
		time := uint64(head[i&headMask])
		i++
		if time >= 1<<7 {
			time = time&0x7f | uint64(head[i&headMask])<<7
			i++
		}
		offset := uint64(head[i&headMask])
		i++
		if offset >= 1<<7 {
			offset = offset&0x7f | uint64(head[i&headMask])<<7
			i++
			if offset >= 1<<14 {
				offset = offset&0x3fff | uint64(head[i&headMask])<<14
				i++
				if offset >= 1<<21 {
					return n, b[at:]
				}
			}
		}
		keyLength := uint64(head[i&headMask]) // of a null key it is -1, whose code is 1
		i++
		if keyLength >= 1<<7 {
			keyLength = keyLength&0x7f | uint64(head[i&headMask])<<7
			i++
		}
		key := at + i
		keyEnd := key + int(keyLength>>1)
		if time >= 1<<14 || offset != uint64(delta)<<1 || keyLength >= 1<<14 || keyLength&1 != 0 && keyLength != 1 || end > len(b) || len(b)-keyEnd < 4 {
			return n, b[at:]
		}
		word = binary.LittleEndian.Uint32(b[keyEnd:])
		valueSize, value := int(twoBytes(word)>>1), keyEnd+2
		if word&0x8081 != 0x80 {
			length, m := short(uint64(word))
			if length&1 != 0 {
				return n, b[at:]
			}
			valueSize, value = int(length>>1), keyEnd+int(m)
		}
		valueEnd := value + valueSize
		if valueEnd != end-1 || b[valueEnd] != 0 { // 0 headers
			return n, b[at:]
		}
		k, v := b[key:keyEnd:keyEnd], b[value:valueEnd:valueEnd]
		if keyLength == 1 {
			k = nil
		}
		r := &records[n]
		r.Offset = baseOffset + delta
		r.Timestamp = baseTime + unzigzag(time)
		r.Key = k
		r.Value = v
		r.Headers = nil
		delta++
		at = end
	}
	return len(records), b[at:]
}

// plainHead is more than what stands before a plain record's key takes. So headMask changes no index of it, and says so to the compiler.
const (
	plainHead = 16
	headMask  = plainHead - 1
)

// twoBytes is the varint of two bytes at the low end of word, if there is one.
func twoBytes(word uint32) uint32 { return word&0x7f | word>>1&0x3f80 }

// tooLong is what short returns for a longer varint: more than any length or delta that fits.
const tooLong = 1<<63 | 1

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

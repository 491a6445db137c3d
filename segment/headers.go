package segment

const (
	minHeaderSize = 2 // two lengths of one byte

	headerBlock    = 64 // headers allocated at once, at least
	maxHeaderBlock = 1 << 12

	maxNames     = 256
	maxNameBytes = 64
)

// headerMemory is where decoded record headers live.
type headerMemory struct {
	block []Header // the length is what has been given out
	left  int      // headers that the batch may still have
	limit int
	names map[string]string // header names seen: few and repeated, so each is allocated once
}

// reset starts a batch. reuse says that the headers of the batch before may be overwritten.
func (m *headerMemory) reset(limit int, reuse bool) {
	m.left, m.limit = limit, limit
	if reuse {
		m.block = m.block[:0]
	} else {
		m.block = nil
	}
}

// read reads the header count and the headers. None at all is nil.
func (m *headerMemory) read(r *reader) []Header {
	n := int(r.signed("header count", 0, int64(r.left()/minHeaderSize)))
	if n > m.left {
		r.fail(ErrTooLarge, "header count", "%d headers so far in the batch, limit %d", m.limit-m.left+n, m.limit)
	}
	if n == 0 || r.err != nil {
		return nil
	}
	m.left -= n
	headers := m.take(n)
	for i := range headers {
		length := r.signed("header name length", 0, int64(r.left()))
		headers[i].Key = m.name(r.bytes("header name", int(length)))
		headers[i].Value = r.nullable("header value length")
	}
	return headers
}

// take cuts n headers off the current block, or off a new one: earlier records keep theirs.
func (m *headerMemory) take(n int) []Header {
	at := len(m.block)
	if cap(m.block)-at < n {
		m.block, at = make([]Header, 0, max(n, min(max(2*cap(m.block), headerBlock), maxHeaderBlock))), 0
	}
	m.block = m.block[:at+n]
	return m.block[at : at+n : at+n]
}

func (m *headerMemory) name(b []byte) string {
	if s, ok := m.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if len(s) <= maxNameBytes && len(m.names) < maxNames {
		if m.names == nil {
			m.names = make(map[string]string)
		}
		m.names[s] = s
	}
	return s
}

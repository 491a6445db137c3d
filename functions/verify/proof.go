package verify

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/segment"
)

// A proof file is what a check found of the sums of a log, for the next one to compare with: lines of JSON, each an object. The first is a proofHead, then comes a provenPartition for each
// partition, and last a proofEnd. It is read partition by partition.

const (
	proofVersion = 1
	maxProofLine = 64 << 20 // bytes: some 400,000 rows of a partition
)

// ProofError is a proof file that cannot be used.
type ProofError struct {
	File, What, Do string
}

func (e *ProofError) Error() string {
	return fmt.Sprintf("proof file %s: %s: %s", e.File, e.What, e.Do)
}

const doBroken = "bring it back from where it is kept, or remove it, by which the next check proves everything anew and compares with nothing"

type proofHead struct {
	Version int       `json:"varveProof"`
	Log     string    `json:"log"`
	Era     int64     `json:"era"` // repairs that were finished
	Made    time.Time `json:"made"`
}

type proofEnd struct {
	Partitions *int   `json:"partitions"`
	Sum        string `json:"sum"` // xxHash64 of all lines before, in hexadecimal
}

// provenPartition is what was proven of one partition. A nil one is of nothing.
type provenPartition struct {
	Topic     segment.TopicID `json:"topic"`
	Name      string          `json:"name"` // the topic's, for people
	Partition int             `json:"partition"`
	From      int64           `json:"from"` // where the first piece begins
	Pieces    []provenPiece   `json:"pieces"`
}

// provenPiece is offsets up to End. Row is rowPrint of the archive row that it was; empty if it is commits, or is to be read again.
type provenPiece struct {
	End  int64        `json:"end"`
	Row  string       `json:"row,omitempty"`
	Kept segment.Sum  `json:"kept"`
	Gone *segment.Sum `json:"gone,omitempty"`
}

// is tells whether it is of the same row.
func (p *provenPiece) is(x *piece) bool { return p.Row == printText(x.print) }

func printText(print uint64) string { return fmt.Sprintf("%016x", print) }

func (p *provenPiece) appended() segment.Sum {
	if p.Gone == nil {
		return p.Kept
	}
	return p.Kept.Plus(*p.Gone)
}

func (p *provenPartition) end() int64 {
	if n := len(p.Pieces); n > 0 {
		return p.Pieces[n-1].End
	}
	return p.From
}

// row is the piece that begins at an offset.
func (p *provenPartition) row(base int64) (provenPiece, bool) {
	if p == nil {
		return provenPiece{}, false
	}
	i, found := slices.BinarySearchFunc(p.Pieces, base, func(x provenPiece, base int64) int { return cmp.Compare(x.End, base) })
	if found {
		i++
	}
	if i == len(p.Pieces) || i == 0 && base != p.From || i > 0 && p.Pieces[i-1].End != base {
		return provenPiece{}, false
	}
	return p.Pieces[i], true
}

// splits is where the partition ended, if that lies within a piece, else 0.
func (p *provenPartition) splits(x *piece) int64 {
	if p == nil || p.end() <= x.base || p.end() >= x.end {
		return 0
	}
	return p.end()
}

// bounds are those between pieces.
func (p *provenPartition) bounds() []bound {
	at := bound{offset: p.From}
	all := []bound{at}
	for i := range p.Pieces {
		at = bound{p.Pieces[i].End, at.appended.Plus(p.Pieces[i].appended())}
		all = append(all, at)
	}
	return all
}

func (p *provenPartition) validate() error {
	if p.Topic.Validate() != nil || p.Partition < 0 || p.From < 0 {
		return fmt.Errorf("partition %d of topic %q from offset %d on", p.Partition, p.Topic, p.From)
	}
	next := p.From
	for _, x := range p.Pieces {
		if all := x.appended().Records; x.End <= next || x.Kept.Records < 0 || all < x.Kept.Records || all > x.End-next {
			return fmt.Errorf("partition %d of topic %s: offsets [%d, %d) with %d records, of %d", p.Partition, p.Topic, next, x.End, x.Kept.Records, all)
		}
		next = x.End
	}
	return nil
}

// provenKey is a partition.
type provenKey struct {
	topic     segment.TopicID
	partition int
}

// span is where a line is in a file.
type span struct{ at, length int64 }

// proofReader is a proof file that was found to be sound. It holds where each partition is.
type proofReader struct {
	name  string
	file  io.ReaderAt
	head  proofHead
	where map[provenKey]span
}

// readProof goes through a proof file.
func readProof(name string, file io.ReaderAt) (*proofReader, error) {
	broken := func(line int, format string, args ...any) error {
		return &ProofError{name, fmt.Sprintf("line %d: %s", line, fmt.Sprintf(format, args...)), doBroken}
	}
	r := &proofReader{name: name, file: file, where: map[provenKey]span{}}
	lines := bufio.NewScanner(io.NewSectionReader(file, 0, 1<<62))
	lines.Buffer(nil, maxProofLine)
	sum, ended, n := xxhash.New(), false, 0
	for at := int64(0); lines.Scan(); n++ {
		b := lines.Bytes()
		var end proofEnd
		switch {
		case ended:
			return nil, broken(n+1, "something follows the end")
		case n == 0:
			if err := strictly(b, &r.head); err != nil || r.head.Version == 0 {
				return nil, broken(1, "no proof begins like that: %v", err)
			}
			if r.head.Version != proofVersion {
				return nil, &ProofError{name, fmt.Sprintf("it is of version %d, known is %d", r.head.Version, proofVersion), "use the varve that made it, or a newer one"}
			}
		case strictly(b, &end) == nil && end.Partitions != nil:
			if want := fmt.Sprintf("%016x", sum.Sum64()); *end.Partitions != len(r.where) || end.Sum != want {
				return nil, broken(n+1, "it ends with %d partitions and the checksum %q, has %d and %s", *end.Partitions, end.Sum, len(r.where), want)
			}
			ended = true
		default:
			p, err := decodeProven(b)
			if err != nil {
				return nil, broken(n+1, "%v", err)
			}
			key := provenKey{p.Topic, p.Partition}
			if _, twice := r.where[key]; twice {
				return nil, broken(n+1, "partition %d of topic %s comes twice", p.Partition, p.Topic)
			}
			r.where[key] = span{at, int64(len(b))}
		}
		at += int64(len(b)) + 1
		_, _ = sum.Write(append(b, '\n'))
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, broken(n+1, "it is longer than %d bytes", maxProofLine)
	} else if err != nil {
		return nil, err
	}
	if !ended {
		return nil, broken(n, "it is cut off")
	}
	return r, nil
}

// strictly decodes one JSON object with known fields only.
func strictly(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the object")
	}
	return nil
}

func decodeProven(b []byte) (*provenPartition, error) {
	p := &provenPartition{}
	if err := strictly(b, p); err != nil {
		return nil, err
	}
	return p, p.validate()
}

// line is a partition's, nil if it has none.
func (r *proofReader) line(key provenKey) ([]byte, error) {
	s, ok := r.where[key]
	if !ok {
		return nil, nil
	}
	b := make([]byte, s.length)
	if _, err := r.file.ReadAt(b, s.at); err != nil {
		return nil, fmt.Errorf("proof file %s: %w", r.name, err)
	}
	return b, nil
}

// proofWriter writes a proof file beside the one that it is to take the place of. It may be used concurrently.
type proofWriter struct {
	mu      sync.Mutex
	file    *os.File
	out     *bufio.Writer
	sum     *xxhash.Digest
	written map[provenKey]bool
}

func newProofWriter(path string, head proofHead) (*proofWriter, error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.new")
	if err != nil {
		return nil, err
	}
	w := &proofWriter{file: f, sum: xxhash.New(), written: map[provenKey]bool{}}
	w.out = bufio.NewWriter(io.MultiWriter(f, w.sum))
	b, err := json.Marshal(head)
	if err == nil {
		err = w.line(b)
	}
	if err != nil {
		w.drop()
		return nil, err
	}
	return w, nil
}

func (w *proofWriter) line(b []byte) error {
	_, _ = w.out.Write(b)
	return w.out.WriteByte('\n') // which has the error of the first, too
}

func (w *proofWriter) put(key provenKey, line []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[key] = true
	return w.line(line)
}

func (w *proofWriter) prove(p *provenPartition) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return w.put(provenKey{p.Topic, p.Partition}, b)
}

// replace ends the file and puts it in place of another, all or nothing.
func (w *proofWriter) replace(path string) error {
	err := w.out.Flush()
	n := len(w.written)
	if b, bad := json.Marshal(proofEnd{Partitions: &n, Sum: fmt.Sprintf("%016x", w.sum.Sum64())}); err == nil && bad == nil {
		err = errors.Join(w.line(b), w.out.Flush(), w.file.Sync(), w.file.Close())
	}
	if err == nil {
		err = os.Rename(w.file.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// drop removes a file that has not taken the other's place.
func (w *proofWriter) drop() {
	_ = w.file.Close()
	_ = os.Remove(w.file.Name())
}

// proof is the file of a check: as it was, if there was one, and as it will be.
type proof struct {
	path string
	old  *proofReader // nil: there was none
	file *os.File     // old's
	*proofWriter
}

// openProof opens the file for a check of this log, of which so many repairs were finished.
func openProof(path string, log string, era int64, now time.Time) (p *proof, err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil { // it is the file that is replaced, wherever it is, and not a link to it
		path = real
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &ProofError{path, "it is no file", "name a file, or one that does not exist yet"}
	}
	if dir := filepath.Dir(path); !isDirectory(dir) {
		return nil, &ProofError{path, fmt.Sprintf("there is no directory %s", dir), "make it, or name a file in one that is there"}
	}
	p = &proof{path: path}
	switch p.file, err = os.Open(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if p.old, err = readProof(path, p.file); err == nil && p.old.head.Log != log {
			err = &ProofError{path, fmt.Sprintf("it is of log %s, this is log %s", p.old.head.Log, log), "name the file of this log, or one that does not exist yet"}
		}
		if err != nil {
			return nil, errors.Join(err, p.file.Close())
		}
	}
	if p.proofWriter, err = newProofWriter(path, proofHead{proofVersion, log, era, now.UTC()}); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func (p *proof) close() (err error) {
	if p.old != nil {
		err = p.file.Close()
	}
	if p.proofWriter != nil {
		p.drop()
	}
	return err
}

// before is what was proven of a partition, nil if nothing was.
func (p *proof) before(topic segment.TopicID, partition int) (*provenPartition, error) {
	if p.old == nil {
		return nil, nil
	}
	b, err := p.old.line(provenKey{topic, partition})
	if b == nil || err != nil {
		return nil, err
	}
	return decodeProven(b)
}

// settle writes what a partition has. If not all of that is known what was proven before stays; if some of it is damaged all will be read by the next check.
func (p *proof) settle(a *account, from int64, partial, damaged bool) error {
	now := &provenPartition{Topic: a.topic.ID, Name: a.topic.Name, Partition: a.partition, From: from}
	for _, x := range a.pieces {
		proven := provenPiece{End: x.end, Kept: x.kept}
		if x.gone.Records > 0 {
			proven.Gone = &x.gone
		}
		if x.row {
			proven.Row = printText(x.print)
		}
		now.Pieces = append(now.Pieces, proven)
	}
	if partial {
		if now = a.old; now == nil {
			return nil
		}
		for i := range now.Pieces {
			if damaged {
				now.Pieces[i].Row = ""
			}
		}
	}
	return p.proofWriter.prove(now)
}

// keep takes over what was proven of partitions that were not looked at, and returns how many there are of topics that there are not any more, by name and id.
func (p *proof) keep(exists func(segment.TopicID) bool) (gone map[string]int, err error) {
	if p.old == nil {
		return nil, nil
	}
	gone = map[string]int{}
	keys := make([]provenKey, 0, len(p.old.where))
	for key := range p.old.where {
		if !p.written[key] {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b provenKey) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	for _, key := range keys {
		b, err := p.old.line(key)
		if err == nil && !exists(key.topic) {
			var was *provenPartition
			if was, err = decodeProven(b); err == nil {
				gone[fmt.Sprintf("%q (%s)", was.Name, key.topic)]++
				continue
			}
		}
		if err == nil {
			err = p.put(key, b)
		}
		if err != nil {
			return nil, err
		}
	}
	return gone, nil
}

// proving does the rest of a check with a proof file. A log of which a repair is not finished is neither compared nor proven.
func (r *run) proving(ctx context.Context, topics []*metadata.Topic) (err error) {
	p, err := openProof(r.o.Proof, r.report.Log, r.mark.Done, r.start)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	r.report.Proof = &Proven{File: r.o.Proof}
	if p.old != nil {
		r.report.Proof.Since = p.old.head.Made
	}
	if r.mark.Begun > r.mark.Done {
		return r.rest(ctx, topics)
	}
	r.proof = p
	if err := r.rest(ctx, topics); err != nil {
		return err
	}
	exists := map[segment.TopicID]bool{}
	for _, t := range topics {
		exists[t.ID] = true
	}
	gone, err := p.keep(func(id segment.TopicID) bool { return exists[id] || r.holes })
	if err != nil {
		return err
	}
	for _, topic := range slices.Sorted(maps.Keys(gone)) {
		r.find(Finding{Kind: HistoryGone, What: fmt.Sprintf("%d partitions were proven of topic %s, which there is not any more", gone[topic], topic)})
	}
	if err := p.replace(p.path); err != nil {
		return err
	}
	r.report.Proof.Replaced = true
	return nil
}

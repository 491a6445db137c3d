package dir

import (
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
)

// step is one thing that a process did to the disk, or, with kind "ack", that one of its calls was answered.
type step struct {
	kind     string // mkdir, create, write, sync, link, remove, syncdir, ack
	path, to string
	data     []byte // of a write
	put      bool   // for ack: of a put, else of a delete
}

// recorder is the disk as one process sees it; the processes of a test share disk and log.
type recorder struct {
	*tree
	log  *[]step
	turn func()                 // waited for before each step; steps are taken one at a time
	lies func(kind string) bool // makes a step succeed without being taken: the negative control
}

func (r *recorder) do(s step, f func() error) error {
	r.turn()
	if r.lies(s.kind) {
		return nil
	}
	err := f()
	if err == nil {
		*r.log = append(*r.log, s)
	}
	return err
}

func (r *recorder) Mkdir(path string) error {
	return r.do(step{kind: "mkdir", path: path}, func() error { return r.tree.Mkdir(path) })
}

func (r *recorder) Link(from, to string) error {
	return r.do(step{kind: "link", path: from, to: to}, func() error { return r.tree.Link(from, to) })
}

func (r *recorder) Remove(path string) error {
	return r.do(step{kind: "remove", path: path}, func() error { return r.tree.Remove(path) })
}

func (r *recorder) SyncDir(path string) error {
	return r.do(step{kind: "syncdir", path: path}, func() error { return r.tree.SyncDir(path) })
}

// Stat changes nothing and is no step, but when it looks matters.
func (r *recorder) Stat(path string) (fs.FileInfo, error) {
	r.turn()
	return r.tree.Stat(path)
}

func (r *recorder) Create(path string) (w writer, err error) {
	err = r.do(step{kind: "create", path: path}, func() error { w, err = r.tree.Create(path); return err })
	return recordedFile{writer: w, r: r, path: path}, err
}

type recordedFile struct {
	writer
	r    *recorder
	path string
}

// Write is two steps, so that a crash may come between them.
func (w recordedFile) Write(b []byte) (int, error) {
	for _, part := range [][]byte{b[:len(b)/2], b[len(b)/2:]} {
		s := step{kind: "write", path: w.path, data: slices.Clone(part)}
		if err := w.r.do(s, func() error { _, err := w.writer.Write(part); return err }); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

func (w recordedFile) Sync() error {
	return w.r.do(step{kind: "sync", path: w.path}, w.writer.Sync)
}

// replay is the disk after these steps.
func replay(steps []step) *tree {
	t := newTree()
	open := map[string]writer{}
	for _, s := range steps {
		switch s.kind {
		case "mkdir":
			t.Mkdir(s.path)
		case "create":
			open[s.path], _ = t.Create(s.path)
		case "write":
			open[s.path].Write(s.data)
		case "sync":
			open[s.path].Sync()
		case "link":
			t.Link(s.path, s.to)
		case "remove":
			t.Remove(s.path)
		case "syncdir":
			t.SyncDir(s.path)
		}
	}
	return t
}

// turns lets processes take one step each in an order drawn by chance. By seed the turn is drawn anew for every
// step, or stays long where it is: some races need one process to stand still while another does all of a put.
type turns struct {
	mu      sync.Mutex
	cond    *sync.Cond
	chance  *rand.Rand
	stay    int // the turn moves once in so many steps
	live    []bool
	waiting []bool
	last    int // who had the turn
	next    int // whose turn it is, or -1
}

func newTurns(seed uint64, n int) *turns {
	t := &turns{chance: rand.New(rand.NewPCG(seed, 7)), stay: []int{1, 10, 30}[seed%3], live: slices.Repeat([]bool{true}, n), waiting: make([]bool, n), next: -1}
	t.cond = sync.NewCond(&t.mu)
	return t
}

// wait returns when it is the turn of process i.
func (t *turns) wait(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[i] = true
	t.draw()
	for t.next != i {
		t.cond.Wait()
	}
	t.last, t.next, t.waiting[i] = i, -1, false
}

func (t *turns) leave(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live[i] = false
	t.draw()
}

// draw gives somebody the turn once everybody who lives waits for it.
func (t *turns) draw() {
	var who []int
	for i, live := range t.live {
		if live && !t.waiting[i] {
			return
		}
		if live {
			who = append(who, i)
		}
	}
	if len(who) > 0 && t.next < 0 {
		t.next = who[t.chance.IntN(len(who))]
		if t.live[t.last] && t.chance.IntN(t.stay) > 0 {
			t.next = t.last
		}
		t.cond.Broadcast()
	}
}

package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/localdev/dynamodb/value"
)

// each runs a test on every kind of store.
func each(t *testing.T, test func(t *testing.T, s Store)) {
	t.Run("memory", func(t *testing.T) { test(t, NewMemory()) })
	t.Run("sqlite", func(t *testing.T) {
		s, err := OpenSQLite(filepath.Join(t.TempDir(), "file.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		test(t, s)
	})
}

func update(t *testing.T, s Store, change func(Writer) error) {
	t.Helper()
	if err := s.Update(change); err != nil {
		t.Fatal(err)
	}
}

func number(i int64) value.Map { return value.Map{"n": value.Int(i)} }

func TestItemsComeBack(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		item := value.Map{"l": value.List{value.Binary("\x00\xff"), value.Null{}}, "e": value.String("")}
		// A table without sort keys has the empty sort key; keys are any bytes.
		keys := []Key{{"a", "p", ""}, {"a", "p\x00\xff", "\x00"}, {"b", "p", "s"}}
		update(t, s, func(w Writer) error {
			err := errors.Join(w.PutTable("a", []byte("A")), w.PutTable("b", []byte("B")))
			for _, k := range keys {
				err = errors.Join(err, w.Put(k, item))
			}
			return err
		})
		update(t, s, func(w Writer) error { return w.Delete(keys[2]) })
		err := s.View(func(r Reader) error {
			for i, k := range keys {
				got, err := r.Get(k)
				if err != nil {
					return err
				}
				if want := i < 2; want != (got != nil) || want && !value.Equal(got, item) {
					t.Errorf("%q: %v", k, got)
				}
			}
			names, err := r.Tables("", 10)
			if !slices.Equal(names, []string{"a", "b"}) {
				t.Errorf("tables %v", names)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestFailedChangeLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		update(t, s, func(w Writer) error { return w.PutTable("a", []byte("A")) })
		sentinel := errors.New("no")
		err := s.Update(func(w Writer) error {
			return errors.Join(w.Put(Key{"a", "p", ""}, number(1)), w.PutTable("b", []byte("B")), w.PutToken("x", "d", time.Unix(1, 0), time.Time{}), sentinel)
		})
		if !errors.Is(err, sentinel) {
			t.Fatal(err)
		}
		_ = s.View(func(r Reader) error {
			item, _ := r.Get(Key{"a", "p", ""})
			definition, _ := r.Table("b")
			_, _, ok, _ := r.Token("x")
			if item != nil || definition != nil || ok {
				t.Errorf("left %v %q %v", item, definition, ok)
			}
			return nil
		})
	})
}

func TestRangeIsOrderedAndBounded(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		sorts := []string{"", "\x00", "a", "aa", "b", "\xff", "\xff\xff"}
		shuffled := slices.Clone(sorts)
		rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		update(t, s, func(w Writer) error {
			err := w.PutTable("a", []byte("A"))
			for _, sort := range shuffled {
				err = errors.Join(err, w.Put(Key{"a", "p", sort}, number(1)), w.Put(Key{"a", "other", sort}, number(2)))
			}
			return err
		})
		for _, c := range []struct {
			within     Bounds
			descending bool
			stop       int
			want       []string
		}{
			{Bounds{}, false, 0, sorts},
			{Bounds{}, true, 0, []string{"\xff\xff", "\xff", "b", "aa", "a", "\x00", ""}},
			{Bounds{From: "a", To: "b", HasTo: true}, false, 0, []string{"a", "aa", "b"}},
			{Bounds{From: "a", To: "b", HasTo: true}, true, 2, []string{"b", "aa"}},
			{Bounds{From: "ab"}, false, 0, []string{"b", "\xff", "\xff\xff"}},
			{Bounds{To: "", HasTo: true}, false, 0, []string{""}},
			{Bounds{From: "c", To: "d", HasTo: true}, false, 0, nil},
		} {
			var got []string
			err := s.View(func(r Reader) error {
				return r.Range("a", "p", c.within, c.descending, func(sort string, item value.Map) (bool, error) {
					got = append(got, sort)
					if !value.Equal(item, number(1)) {
						t.Errorf("foreign item at %q", sort)
					}
					return len(got) != c.stop, nil
				})
			})
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%+v: %q, want %q (%v)", c, got, c.want, err)
			}
		}
	})
}

func TestPartitionsInHashOrder(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		want := map[string]bool{}
		update(t, s, func(w Writer) error {
			err := errors.Join(w.PutTable("a", []byte("A")), w.PutTable("b", []byte("B")), w.Put(Key{"b", "p0", ""}, number(0)))
			for i := range 50 {
				partition := fmt.Sprint("p", i)
				want[partition] = true
				err = errors.Join(err, w.Put(Key{"a", partition, "1"}, number(0)), w.Put(Key{"a", partition, "2"}, number(0)))
			}
			return err
		})
		// A partition without items is none.
		update(t, s, func(w Writer) error {
			return errors.Join(w.Delete(Key{"a", "p7", "1"}), w.Delete(Key{"a", "p7", "2"}))
		})
		delete(want, "p7")
		err := s.View(func(r Reader) error {
			at := Place{}
			for {
				next, ok, err := r.NextPartition("a", at)
				if err != nil || !ok {
					return err
				}
				if !at.Less(next) || !want[next.Partition] || next != PlaceOf(next.Partition) {
					t.Errorf("%v after %v", next, at)
				}
				delete(want, next.Partition)
				at = next
			}
		})
		if err != nil || len(want) > 0 {
			t.Errorf("missing %v (%v)", want, err)
		}
	})
}

func TestDropTableTakesItsItemsOnly(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		update(t, s, func(w Writer) error {
			return errors.Join(w.PutTable("a", []byte("A")), w.PutTable("b", []byte("B")), w.Put(Key{"a", "p", ""}, number(1)), w.Put(Key{"b", "p", ""}, number(2)))
		})
		update(t, s, func(w Writer) error { return w.DropTable("a") })
		update(t, s, func(w Writer) error { return w.PutTable("a", []byte("A2")) })
		_ = s.View(func(r Reader) error {
			a, _ := r.Get(Key{"a", "p", ""})
			b, _ := r.Get(Key{"b", "p", ""})
			definition, _ := r.Table("a")
			if a != nil || b == nil || string(definition) != "A2" {
				t.Errorf("%v %v %s", a, b, definition)
			}
			return nil
		})
	})
}

func TestTokensAreForgotten(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		at := func(sec int64) time.Time { return time.Unix(sec, 5) }
		update(t, s, func(w Writer) error { return w.PutToken("old", "1", at(100), at(0)) })
		update(t, s, func(w Writer) error { return w.PutToken("new", "2", at(200), at(100)) })
		_ = s.View(func(r Reader) error {
			digest, when, ok, err := r.Token("old")
			if digest != "1" || !when.Equal(at(100)) || !ok || err != nil {
				t.Errorf("%q %v %v %v", digest, when, ok, err)
			}
			return nil
		})
		update(t, s, func(w Writer) error { return w.PutToken("newest", "3", at(300), at(101)) })
		_ = s.View(func(r Reader) error {
			_, _, old, _ := r.Token("old")
			_, _, recent, _ := r.Token("new")
			if old || !recent {
				t.Errorf("old %v, new %v", old, recent)
			}
			return nil
		})
	})
}

func TestUpdatesAreSerial(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		update(t, s, func(w Writer) error { return w.PutTable("a", []byte("A")) })
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 50 {
					err := s.Update(func(w Writer) error {
						item, err := w.Get(Key{"a", "p", ""})
						if err != nil {
							return err
						}
						n, _ := item["n"].(value.Number)
						n, _ = n.Add(value.Int(1))
						return w.Put(Key{"a", "p", ""}, value.Map{"n": n})
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		_ = s.View(func(r Reader) error {
			if item, _ := r.Get(Key{"a", "p", ""}); !value.Equal(item, number(200)) {
				t.Errorf("lost updates: %v", item)
			}
			return nil
		})
	})
}

func TestClosedStoreSaysSo(t *testing.T) {
	each(t, func(t *testing.T, s Store) {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		view := s.View(func(Reader) error { return nil })
		change := s.Update(func(Writer) error { return nil })
		if !errors.Is(view, ErrClosed) || !errors.Is(change, ErrClosed) || s.Close() != nil {
			t.Errorf("%v, %v", view, change)
		}
	})
}

func TestSQLiteRefusesForeignFiles(t *testing.T) {
	for name, content := range map[string]string{"no database": strings.Repeat("something else", 100), "other tables": ""} {
		file := filepath.Join(t.TempDir(), "file.db")
		if content != "" {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			c := connection{}
			if err := errors.Join(c.open("file:"+file), c.exec("CREATE TABLE x (y)"), c.close()); err != nil {
				t.Fatal(err)
			}
		}
		s, err := OpenSQLite(file)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s: opened", name)
		}
		if name == "other tables" && !errors.Is(err, ErrForeignFile) {
			t.Error(err)
		}
	}
}

// TestSQLiteBusyIsTyped: a file that is locked for longer than the time-out is ErrBusy, and then usable again.
func TestSQLiteBusyIsTyped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file?&#.db") // a name that a URL would take apart
	holder, err := OpenSQLite(file)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	waiter, err := openSQLite(file, "_pragma=busy_timeout(20)")
	if err != nil {
		t.Fatal(err)
	}
	defer waiter.Close()
	change := func(w Writer) error { return w.PutTable("a", []byte("A")) }
	err = holder.Update(func(Writer) error {
		if err := waiter.Update(change); !errors.Is(err, ErrBusy) {
			t.Errorf("while locked: %v", err)
		}
		return waiter.View(func(Reader) error { return nil }) // reading goes on
	})
	if err != nil {
		t.Fatal(err)
	}
	update(t, waiter, change)
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

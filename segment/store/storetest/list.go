package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/varvelog/varve/segment/store"
)

// names follows the pages of a list to its end.
func names(t *testing.T, s store.Lister, prefix, after string, max int) []string {
	t.Helper()
	limit := store.PageSize(max)
	var all []string
	for pages := 0; ; pages++ {
		page, err := s.List(t.Context(), prefix, after, max)
		if err != nil {
			t.Fatalf("list %q after %q: %v", prefix, after, err)
		}
		if len(page.Objects) > limit {
			t.Fatalf("list %q: %d objects in a page of %d", prefix, len(page.Objects), limit)
		}
		for _, o := range page.Objects {
			all = append(all, o.Name)
		}
		if !page.More {
			return all
		}
		if page.Last <= after && pages > 0 {
			t.Fatalf("list %q: the page after %q ends at %q", prefix, after, page.Last)
		}
		after = page.Last
	}
}

func expect(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %d names %.300q, want %d names %.300q", what, len(got), got, len(want), want)
	}
}

func listInOrder(t *testing.T, s store.Store) {
	// '-' and '.' sort before '/', '0' after it: an order by folders would be another one
	all := []string{"a", "a-b", "a.b/c", "b/a", "b/a-a/x", "b/a0", "b/b/c/d", "b-", "b0/a", "c"}
	all[0] = "a0" // "a" and a folder of that name cannot be on a disk both
	slices.Sort(all)
	expect(t, "an empty store", names(t, s, "", "", 0), nil)
	for i := range all {
		mustPut(t, s, all[(i*7)%len(all)], []byte("x"))
	}
	for _, max := range []int{0, 1, 2, 3, 9, 10, 11, 5000, -1} {
		expect(t, fmt.Sprintf("pages of %d", max), names(t, s, "", "", max), all)
	}
	for _, prefix := range []string{"a", "a-", "b", "b/", "b/a", "b/a-", "b/a-a/", "b/b/c/d", "b-", "d", "b/b/c/d/", "c"} {
		var want []string
		for _, name := range all {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		for _, max := range []int{0, 1} {
			expect(t, "prefix "+prefix, names(t, s, prefix, "", max), want)
		}
		for _, after := range []string{"a0", "b/a", "b/a-a", "b/a-a/x", "b/b", "zz", "B", "!", "b/a/"} {
			rest := slices.DeleteFunc(slices.Clone(want), func(name string) bool { return name <= after })
			expect(t, fmt.Sprintf("prefix %s after %q", prefix, after), names(t, s, prefix, after, 1), rest)
		}
	}
}

// paging has one page of objects, then one more, then two pages and one more.
func paging(t *testing.T, s store.Store) {
	var want []string
	for _, c := range []struct {
		objects int
		pages   []int
	}{{1000, []int{1000}}, {1001, []int{0, 999}}, {2001, []int{0}}} {
		var more []string
		for i := len(want); i < c.objects; i++ {
			more = append(more, fmt.Sprintf("keep/intake/%02x/%06d", i%7, i))
		}
		putAll(t, s, more)
		want = append(want, more...)
		slices.Sort(want)
		for _, max := range c.pages {
			expect(t, fmt.Sprintf("%d objects in pages of %d", c.objects, max), names(t, s, "keep/", "", max), want)
		}
	}
	page, err := s.List(t.Context(), "keep/", "", 0)
	if err != nil || len(page.Objects) != store.MaxPage || !page.More || page.Last != want[store.MaxPage-1] {
		t.Errorf("first page: %d objects, more %v, last %q, %v", len(page.Objects), page.More, page.Last, err)
	}
	middle := want[1300]
	expect(t, "the second half", names(t, s, "", middle, 0), want[1301:])
}

func putAll(t *testing.T, s store.Putter, names []string) {
	t.Helper()
	var wg sync.WaitGroup
	for part := range slices.Chunk(names, (len(names)+15)/16) {
		wg.Go(func() {
			for _, name := range part {
				if err := s.Put(t.Context(), name, []byte(name)); err != nil {
					t.Errorf("put %s: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
}

// fromAGoneName goes on from a name that was deleted since, and from names that never were.
func fromAGoneName(t *testing.T, s store.Store) {
	all := []string{"l/01", "l/02", "l/03", "l/04", "m/01"}
	putAll(t, s, all)
	if err := s.Delete(t.Context(), "l/02"); err != nil {
		t.Fatal(err)
	}
	expect(t, "after l/02, which is gone", names(t, s, "l/", "l/02", 1), []string{"l/03", "l/04"})
	expect(t, "after l/010, which never was", names(t, s, "l/", "l/010", 0), []string{"l/03", "l/04"})
	expect(t, "after l/, which no object can be", names(t, s, "", "l/", 2), []string{"l/01", "l/03", "l/04", "m/01"})
	expect(t, "after everything", names(t, s, "", "m/01", 0), nil)
}

func prefixesOfOthers(t *testing.T, s store.Store) {
	putAll(t, s, []string{"orders/1", "orders/2", "orders-archive/1", "orders2/1", "order"})
	expect(t, "orders/", names(t, s, "orders/", "", 0), []string{"orders/1", "orders/2"})
	if err := s.Delete(t.Context(), names(t, s, "orders/", "", 0)...); err != nil {
		t.Fatal(err)
	}
	expect(t, "after deleting orders/", names(t, s, "", "", 0), []string{"order", "orders-archive/1", "orders2/1"})
}

func deleteObjects(t *testing.T, s store.Store) {
	putAll(t, s, []string{"a", "b", "c", "d/e"})
	for _, gone := range [][]string{{}, {"a"}, {"a"}, {"never"}, {"never/in", "a", "b"}, {"d/e/f", "d"}, {"b", "never"}} {
		if err := s.Delete(t.Context(), gone...); err != nil {
			t.Errorf("delete %q: %v", gone, err)
		}
	}
	expect(t, "what is left", names(t, s, "", "", 0), []string{"c", "d/e"})
	_, err := s.Get(t.Context(), "a", 0, -1, nil)
	fails(t, err, store.OpGet, "a", store.ErrNotExist)
	_, err = s.Stat(t.Context(), "b")
	fails(t, err, store.OpStat, "b", store.ErrNotExist)
	holds(t, s, "d/e", []byte("d/e"))
}

// deleteMany deletes more than one request can name.
func deleteMany(t *testing.T, s store.Store) {
	var all []string
	for i := range 1003 {
		all = append(all, fmt.Sprintf("d/%04d", i))
	}
	putAll(t, s, all)
	if err := s.Delete(t.Context(), all[1:1002]...); err != nil {
		t.Fatal(err)
	}
	expect(t, "what is left", names(t, s, "", "", 0), []string{all[0], all[1002]})
}

package sdk_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/embedded"
	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/fault"
)

func TestOpenNeedsADriver(t *testing.T) {
	for _, raw := range []string{"file://./x", "mem://"} {
		if _, err := sdk.Open(t.Context(), raw); !errors.Is(err, sdk.ErrInvalid) || !strings.Contains(err.Error(), "embedded.Driver()") {
			t.Errorf("%s: %v", raw, err)
		}
	}
	_, err := sdk.Open(t.Context(), "kafka://h", sdk.WithDriver(embedded.Driver()))
	if !errors.Is(err, sdk.ErrInvalid) || !strings.Contains(err.Error(), "aws://, file://, mem://, https://") {
		t.Error(err)
	}
}

type requestHook struct {
	mu sync.Mutex
	by map[string]int
}

func (h *requestHook) OnRequest(e sdk.RequestEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = map[string]int{}
	}
	h.by[e.Service] += e.Requests
}

func TestOpenChecksOptions(t *testing.T) {
	driver := sdk.WithDriver(embedded.Driver())
	for name, opts := range map[string][]sdk.Option{
		"no driver":      {sdk.WithDriver(nil)},
		"one twice":      {driver, driver},
		"hook of none":   {driver, sdk.WithHooks(struct{}{})},
		"a nil hook":     {driver, sdk.WithHooks(nil)},
		"a hook by type": {driver, sdk.WithHooks(requestHook{})}, // its method has a pointer receiver
	} {
		if _, err := sdk.Open(t.Context(), "mem://", opts...); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := &requestHook{}
	log, err := sdk.Open(t.Context(), "mem://", driver, sdk.WithHooks(h))
	if err != nil {
		t.Fatal(err)
	}
	if h.by["table"] == 0 || h.by["store"] == 0 {
		t.Errorf("requests seen: %v", h.by)
	}
	if err := errors.Join(log.Close(), log.Close()); err != nil {
		t.Error(err)
	}
}

// services is a table and a prefix, which a test may combine with others'.
type services struct {
	table          *embedded.Memory
	objects        store.Store
	bucket, prefix string
}

func newServices(t *testing.T, prefix string, hook dynamodb.Hook) services {
	t.Helper()
	s := services{objects: newObjects(t), bucket: "b", prefix: prefix}
	var err error
	if s.table, err = embedded.NewMemory(embedded.MemoryOptions{Engine: dynamodb.Options{Hook: hook}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.table.Close() })
	return s
}

func (s services) Schemes() []string { return []string{"test"} }

func (s services) Open(ctx context.Context, _ *url.URL, o sdk.DriverOptions) (sdk.Backend, error) {
	b, err := s.table.Open(ctx, &url.URL{Scheme: "mem"}, o)
	b.Store, b.Bucket, b.Prefix, b.Close = s.objects, s.bucket, s.prefix, nil
	return b, err
}

func (s services) log() (*sdk.Log, error) {
	return sdk.Open(context.Background(), "test://", sdk.WithDriver(s), sdk.WithEnv(env.System()))
}

func (s services) identity(t *testing.T) (metadata.Identity, bool) {
	t.Helper()
	b, err := s.Open(t.Context(), nil, sdk.DriverOptions{Env: env.System(), OnTable: func(metadata.Call) {}, OnStore: func(store.Call) {}})
	if err != nil {
		t.Fatal(err)
	}
	id, ok, err := b.Table.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return id, ok
}

func mustOpen(t *testing.T, s services) *sdk.Log {
	t.Helper()
	log, err := s.log()
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func objectNames(t *testing.T, s store.Store) (names []string) {
	t.Helper()
	page, err := s.List(t.Context(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range page.Objects {
		names = append(names, o.Name)
	}
	return names
}

func TestIdentity(t *testing.T) {
	s := newServices(t, "p", nil)
	mustOpen(t, s)
	id, ok := s.identity(t)
	if !ok || id.Log == (segment.LogID{}) || id.Bucket != "b" || id.Prefix != "p" || id.Version != metadata.FormatVersion {
		t.Errorf("%+v, %v", id, ok)
	}
	if names := objectNames(t, s.objects); !slices.Equal(names, []string{segment.IdentityName}) {
		t.Errorf("objects: %v", names)
	}
	mustOpen(t, s)
	if again, _ := s.identity(t); again != id {
		t.Errorf("another Open changed %+v to %+v", id, again)
	}
}

// A prefix and a table that belong to different logs, or one of them to none, are refused, and nothing is written.
func TestIdentityOfTwoLogs(t *testing.T) {
	a, twin, b, fresh := newServices(t, "a", nil), newServices(t, "a", nil), newServices(t, "b", nil), newServices(t, "c", nil)
	for _, s := range []services{a, twin, b} {
		if _, err := mustOpen(t, s).Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	idA, _ := a.identity(t)
	hexA := strings.ToLower(hexOf(idA.Log))
	for name, s := range map[string]services{
		"two logs":                     {b.table, a.objects, "b", "a"},
		"two logs of one prefix":       {twin.table, a.objects, "b", "a"},
		"empty table, prefix of a log": {fresh.table, a.objects, "b", "a"},
		"table of a log, empty prefix": {a.table, newObjects(t), "b", "elsewhere"},
		"a log whose objects are gone": {a.table, newObjects(t), "b", "a"},
		"the prefix was copied":        {a.table, a.objects, "b", "copy"},
	} {
		before := objectNames(t, s.objects)
		_, hadIdentity := s.identity(t)
		_, err := s.log()
		var wrong *sdk.WrongLogError
		if !errors.Is(err, sdk.ErrWrongLog) || !errors.As(err, &wrong) || !strings.Contains(err.Error(), hexA) || !strings.Contains(err.Error(), s.prefix) {
			t.Errorf("%s: %v", name, err)
		}
		if after := objectNames(t, s.objects); !slices.Equal(before, after) {
			t.Errorf("%s: objects %v became %v", name, before, after)
		}
		if _, has := s.identity(t); has != hadIdentity {
			t.Errorf("%s: the table got an identity", name)
		}
	}
}

func hexOf(id segment.LogID) string {
	const digits = "0123456789abcdef"
	var b []byte
	for _, x := range id {
		b = append(b, digits[x>>4], digits[x&15])
	}
	return string(b)
}

// A first Open that dies after the table's identity is completed by the next one, as the same log.
func TestIdentityCrashBetweenThePuts(t *testing.T) {
	s := newServices(t, "p", nil)
	objects := s.objects
	faulty := fault.New(objects, env.System(), func(c fault.Call) fault.Fault {
		if c.Op == store.OpPut {
			return fault.Fault{Kind: fault.LostBefore}
		}
		return fault.Fault{}
	})
	defer faulty.Close()
	s.objects = faulty
	if _, err := s.log(); !errors.Is(err, store.ErrUnavailable) {
		t.Fatal(err)
	}
	id, ok := s.identity(t)
	if !ok || len(objectNames(t, objects)) != 0 {
		t.Fatalf("%v, objects %v", ok, objectNames(t, objects))
	}
	s.objects = objects
	mustOpen(t, s)
	if after, _ := s.identity(t); after != id || len(objectNames(t, objects)) != 1 {
		t.Errorf("%+v became %+v; objects %v", id, after, objectNames(t, objects))
	}
}

// First Opens that meet make one log.
func TestIdentityOfOpensThatMeet(t *testing.T) {
	s := newServices(t, "p", nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := s.log(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// interrupted has something happen just before or just after the first look for varve.json.
type interrupted struct {
	store.Store
	before, after func()
}

func (i *interrupted) Stat(ctx context.Context, name string) (store.Info, error) {
	before, after := i.before, i.after
	i.before, i.after = nil, nil
	if before != nil {
		before()
	}
	info, err := i.Store.Stat(ctx, name)
	if after != nil {
		after()
	}
	return info, err
}

// A first Open is overtaken by another one, which goes on to make a topic: both open the same log.
func TestIdentityOfAnOpenThatIsOvertaken(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			s := newServices(t, "p", nil)
			quick := s
			other := func() {
				if _, err := mustOpen(t, quick).Admin().CreateTopic(t.Context(), sdk.NewTopic{Name: "t"}); err != nil {
					t.Fatal(err)
				}
			}
			slow := &interrupted{Store: s.objects, before: other}
			if when == "after" {
				slow.before, slow.after = nil, other
			}
			s.objects = slow
			if _, err := s.log(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Two empty tables whose first Opens meet at one prefix: the one that comes second is refused.
func TestIdentityOfTwoTablesThatMeet(t *testing.T) {
	a, b := newServices(t, "p", nil), newServices(t, "p", nil)
	a.objects = &overtaken{Store: b.objects, first: func() { mustOpen(t, b) }}
	_, err := a.log()
	idB, _ := b.identity(t)
	if !errors.Is(err, sdk.ErrWrongLog) || !strings.Contains(err.Error(), hexOf(idB.Log)) {
		t.Error(err)
	}
	mustOpen(t, b)
}

// overtaken lets somebody else be first with a put.
type overtaken struct {
	store.Store
	first func()
}

func (s *overtaken) Put(ctx context.Context, name string, body []byte) error {
	s.first()
	return s.Store.Put(ctx, name, body)
}

func TestIdentityThatCannotBeRead(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON":   "x",
		"short id":  `{"log":"00","version":1}`,
		"too large": `{"log":"` + strings.Repeat("0", 32) + `","version":1,"bucket":"b","prefix":"p"}` + strings.Repeat(" ", 16<<10),
		"empty":     "",
	} {
		s := newServices(t, "p", nil)
		if err := s.objects.Put(t.Context(), segment.IdentityName, []byte(body)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.log(); !errors.Is(err, sdk.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if _, has := s.identity(t); has {
			t.Errorf("%s: the table got an identity", name)
		}
	}
}

// A topic is not created in a log whose prefix has become another's since it was opened.
func TestCreateTopicChecksIdentity(t *testing.T) {
	a, b := newServices(t, "p", nil), newServices(t, "p", nil)
	mustOpen(t, b)
	swap := &swapStore{Store: a.objects}
	a.objects = swap
	admin := mustOpen(t, a).Admin()
	swap.Store = b.objects
	if _, err := admin.CreateTopic(t.Context(), sdk.NewTopic{Name: "t"}); !errors.Is(err, sdk.ErrWrongLog) {
		t.Errorf("%v", err)
	}
	swap.Store = newObjects(t)
	if _, err := admin.CreateTopic(t.Context(), sdk.NewTopic{Name: "t"}); !errors.Is(err, sdk.ErrWrongLog) {
		t.Errorf("%v", err)
	}
	if topics, err := admin.ListTopics(t.Context()); err != nil || len(topics) > 0 {
		t.Errorf("%v, %v", topics, err)
	}
}

type swapStore struct{ store.Store }

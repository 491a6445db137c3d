package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awscreds "github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/localdev/dynamodb"
	"github.com/varvelog/varve/localdev/minio"
	"github.com/varvelog/varve/localdev/minio/miniotest"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment/store"
	"github.com/varvelog/varve/segment/store/s3"
)

// The tests of this file run on a real MinIO, and on the DynamoDB engine where it is reached over a socket.

// TestMinIO_Again runs those tests again, their objects on MinIO, that need neither virtual time nor anything else than a store.
func TestMinIO_Again(t *testing.T) {
	server := miniotest.Start(t)
	access, secret := server.Credentials()
	inMemory, n := newObjects, 0
	t.Cleanup(func() { newObjects = inMemory })
	newObjects = func(t testing.TB) store.Store {
		t.Helper()
		n++
		s, err := s3.Open(t.Context(), s3.Config{Bucket: miniotest.Bucket, Prefix: fmt.Sprint("again/", n), Endpoint: server.Endpoint(), Region: minio.Region,
			Credentials: awscreds.NewStaticCredentialsProvider(access, secret, "")})
		check(t, err)
		t.Cleanup(func() { s.Close() })
		return s
	}
	for _, again := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"CreateTopicDefaults", TestCreateTopicDefaults},
		{"ListTopics", TestListTopics},
		{"DescribeTopicHottestFirst", TestDescribeTopicHottestFirst},
		{"DeleteRecords", TestDeleteRecords},
		{"SetFence", TestSetFence},
		{"OffsetForTime", TestOffsetForTime},
		{"ReadSegment", TestReadSegment},
		{"BR28_GrowKeyed", TestBR28_GrowKeyed},
		{"BR27_TopicCreatedAgain", TestBR27_TopicCreatedAgain},
		{"Identity", TestIdentity},
		{"IdentityOfTwoLogs", TestIdentityOfTwoLogs},
		{"IdentityOfOpensThatMeet", TestIdentityOfOpensThatMeet},
		{"IdentityOfTwoTablesThatMeet", TestIdentityOfTwoTablesThatMeet},
		{"CreateTopicChecksIdentity", TestCreateTopicChecksIdentity},
		{"RecordsStayValidUnlessRecycled", TestRecordsStayValidUnlessRecycled},
		{"DecodedRecordsAreBounded", TestDecodedRecordsAreBounded},
		{"ReaderReadsWhatWasWritten", TestReaderReadsWhatWasWritten},
		{"BR05_NullAndEmptyAreReadAsTheyWere", TestBR05_NullAndEmptyAreReadAsTheyWere},
		{"BR16_TimeLookup", TestBR16_TimeLookup},
		{"BR16_TimesBelowTheLogStartAndBetweenMilliseconds", TestBR16_TimesBelowTheLogStartAndBetweenMilliseconds},
		{"BR16_ARecordFromTheFarFuture", TestBR16_ARecordFromTheFarFuture},
		{"BR19_RecordLargerThanTheFetchLimit", TestBR19_RecordLargerThanTheFetchLimit},
		{"BR21_ABatchOfExactlyTheLimitIsRead", TestBR21_ABatchOfExactlyTheLimitIsRead},
	} {
		t.Run(again.name, again.run)
	}
}

// onMinIO is a MinIO and an engine that is served.
func onMinIO(t *testing.T, server *minio.Server) awsServices {
	t.Helper()
	access, secret := server.Credentials()
	return awsServices{miniotest.Bucket, server.Endpoint(), miniotest.ServeTables(t, dynamodb.Options{}), access, secret}
}

func TestMinIO_OpenAWS(t *testing.T) { testOpenAWS(t, onMinIO(t, miniotest.Start(t))) }

func TestMinIO_OpenAWSProfiles(t *testing.T) { testOpenAWSProfiles(t, onMinIO(t, miniotest.Start(t))) }

// settlements counts commits of unknown outcome by how they were settled.
type settlements struct{ found, again atomic.Int64 }

func (s *settlements) OnSettle(e sdk.SettleEvent) {
	if strings.HasPrefix(e.Branch, "found") {
		s.found.Add(1)
	}
	if e.Branch == "committed again" {
		s.again.Add(1)
	}
}

// failedPuts has a value after each put that failed, if it is not full.
type failedPuts chan struct{}

func (f failedPuts) OnRequest(e sdk.RequestEvent) {
	if e.Service == "store" && e.Op == store.OpPut && e.Err != nil {
		select {
		case f <- struct{}{}:
		default:
		}
	}
}

// loseCommits loses every other commit on its way to the table, or its answer on the way back, in turn.
func loseCommits() dynamodb.Hook {
	var n atomic.Int64
	return func(_ context.Context, c dynamodb.Call) dynamodb.Fault {
		if !isCommit(c) {
			return dynamodb.Fault{}
		}
		switch n.Add(1) % 4 {
		case 1:
			return dynamodb.Dropped()
		case 3:
			return dynamodb.AnswerLost()
		}
		return dynamodb.Fault{}
	}
}

// TestMinIO_KilledUnderAProducer kills MinIO three times under a producer and a reader that follows it, waits until a put has failed for good in
// the store's eyes, and starts it again; commits are lost on the way all along. Nothing is lost, nothing there twice, and the reader, which hears
// that the store does not answer and goes on, misses nothing.
func TestMinIO_KilledUnderAProducer(t *testing.T) {
	server := miniotest.Start(t)
	miniotest.RootEnvironment(t, server)
	access, secret := server.Credentials()
	services := awsServices{miniotest.Bucket, server.Endpoint(), miniotest.ServeTables(t, dynamodb.Options{Hook: loseCommits()}), access, secret}
	failed, settled := make(failedPuts, 1), new(settlements)
	log, err := sdk.Open(t.Context(), services.url("killed", "varve"), sdk.WithCreateTable(), sdk.WithHooks(failed, settled))
	check(t, err)
	defer log.Close()
	s := startStream(t, log)
	f := s.follow(services.url("killed", "varve"))
	for range 3 {
		s.more(2000)
		for len(failed) > 0 {
			<-failed
		}
		server.Kill()
		select {
		case <-failed:
		case <-t.Context().Done():
		}
		check(t, server.Restart(t.Context()))
	}
	s.more(2000)
	sent := s.finish(log)
	read, unreachable := f.finish(int64(sent))
	found, again := settled.found.Load(), settled.again.Load()
	if unreachable == 0 || found == 0 || again == 0 {
		t.Error("it went too well")
	}
	t.Logf("%d records over three crashes; of the commits lost %d were found and %d sent again; a reader that followed read %d, and heard %d times that "+
		"the store does not answer", sent, found, again, read, unreachable)
}

// TestBR42_MinIOUnderAProducer: session credentials end under a producer, by their time and then early: one renewal each, nothing lost, nothing
// twice. While none can be had, records are kept; when that ends, they are delivered; when it does not, they fail at their deadline and
// the error says why.
func TestBR42_MinIOUnderAProducer(t *testing.T) {
	const life = 10 * time.Second
	issuer := miniotest.NewIssuer(t, miniotest.Start(t), "token", life)
	issuer.Environment(t, "AWS_SHARED_CREDENTIALS_FILE", miniotest.WriteFile(t, "[tables]\naws_access_key_id=t\naws_secret_access_key=s\n"))
	services := awsServices{bucket: miniotest.Bucket, s3: issuer.S3, tables: miniotest.ServeTables(t, dynamodb.Options{})}
	log, err := sdk.Open(t.Context(), services.url("renewed", "varve", "dynamodb_profile", "tables"), sdk.WithCreateTable())
	check(t, err)
	defer log.Close()
	issuer.SetLife(time.Hour)
	wantGiven := func(want int, when string) {
		t.Helper()
		if given, _, _ := issuer.Counts(); given != want {
			t.Errorf("%s: credentials were given %d times, want %d", when, given, want)
		}
	}

	s := startStream(t, log)
	s.runFor(life + time.Second)
	s.more(100)
	wantGiven(2, "over the end of a life")
	if _, refused, _ := issuer.Counts(); refused > 0 {
		t.Errorf("%d requests came with credentials that were over", refused)
	}
	issuer.Expire()
	s.more(1000)
	wantGiven(3, "called expired early")

	check(t, s.producer.Flush(t.Context())) // a put that meets two expiries is refused
	issuer.SetDown(true)
	issuer.Expire()
	s.runFor(time.Second)
	issuer.SetDown(false)
	s.more(1000)
	wantGiven(4, "none to be had for a second")
	if _, _, vain := issuer.Counts(); vain == 0 {
		t.Error("nobody asked for credentials while none were to be had")
	}
	t.Logf("%d records over three renewals", s.finish(log))

	issuer.SetDown(true)
	issuer.Expire()
	const deadline = 2 * time.Second
	p, err := log.NewProducer(sdk.WithDeliveryDeadline(deadline), sdk.WithSmallSegments(0)) // the table has other credentials
	check(t, err)
	clock := env.System()
	start := clock.Mono()
	err = p.ProduceSync(t.Context(), rec(streamTopic, "late")).Err()
	if took := clock.Mono() - start; !errors.Is(err, sdk.ErrTimedOut) || !errors.Is(err, store.ErrDenied) || took < deadline {
		t.Errorf("no credentials: %v after %v, want it kept for %v", err, took, deadline)
	}
	check(t, p.Close(t.Context()))
}

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/varvelog/varve/internal/env"
	"github.com/varvelog/varve/sdk"
)

const (
	smokeTopic = "varve-smoke-test"
	// A role, a policy and a function's URL take a while until they are known everywhere.
	patience = time.Minute
	pause    = 3 * time.Second
	maxBody  = 1 << 20
)

// smoke sends a record through one function and has it back from the other, as a client over HTTPS does; and sees that nobody without a signature gets in.
func smoke(ctx context.Context, args []string, out io.Writer) (err error) {
	d, err := parseLog(args[0])
	if err != nil {
		return err
	}
	log, err := sdk.Open(ctx, args[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	topic := sdk.NewTopic{Name: smokeTopic, Partitions: 1, Config: map[string]string{"retention.ms": "86400000"}}
	if _, err := log.Admin().CreateTopic(ctx, topic); err != nil && !errors.Is(err, sdk.ErrTopicExists) {
		return err
	}
	defer func() { err = errors.Join(err, log.Admin().DeleteTopic(ctx, smokeTopic)) }()
	c, err := config.LoadDefaultConfig(ctx, config.WithRegion(d.region))
	if err != nil {
		return err
	}
	t := &tester{env: env.System(), config: c, produce: strings.TrimSuffix(args[1], "/"), fetch: strings.TrimSuffix(args[2], "/")}
	if err := t.roundTrip(ctx); err != nil {
		return err
	}
	if err := t.refusesStrangers(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, "a record went in and came out again; requests without a signature are refused")
	return nil
}

type tester struct {
	env            env.Env
	config         aws.Config
	produce, fetch string // URLs
}

func (t *tester) roundTrip(ctx context.Context) error {
	value := fmt.Sprintf("smoke test %016x", t.env.Uint64())
	body, err := json.Marshal(map[string]any{"records": []any{map[string]any{"value": value}}})
	if err != nil {
		return err
	}
	var appended struct {
		Results []struct {
			Partition int    `json:"partition"`
			Offset    *int64 `json:"offset"`
		} `json:"results"`
	}
	if err := t.until(ctx, http.MethodPost, t.produce+"/v1/topics/"+smokeTopic+"/records", body, &appended); err != nil {
		return err
	}
	if len(appended.Results) != 1 || appended.Results[0].Offset == nil {
		return fmt.Errorf("the produce function answered %+v, not with one offset", appended)
	}
	at := appended.Results[0]
	var read struct {
		Records []json.RawMessage `json:"records"`
	}
	if err := t.until(ctx, http.MethodGet, fmt.Sprintf("%s/v1/topics/%s/partitions/%d/records?offset=%d&wait=5s", t.fetch, smokeTopic, at.Partition, *at.Offset), nil, &read); err != nil {
		return err
	}
	if len(read.Records) == 0 || !bytes.Contains(read.Records[0], []byte(value)) {
		return fmt.Errorf("the fetch function did not answer with the record at offset %d of partition %d: %s", *at.Offset, at.Partition, read.Records)
	}
	return nil
}

func (t *tester) refusesStrangers(ctx context.Context) error {
	for _, url := range []string{t.produce + "/v1/topics/" + smokeTopic + "/records", t.fetch + "/v1/topics"} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusForbidden && response.StatusCode != http.StatusUnauthorized {
			return fmt.Errorf("%s answers a request without a signature with %s: it must not", url, response.Status)
		}
	}
	return nil
}

// until asks until it gets an answer, for as long as what has just been made may take to be known everywhere.
func (t *tester) until(ctx context.Context, method, url string, body []byte, answer any) error {
	timed, cancel := t.env.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := t.once(timed, method, url, body, answer)
		if err == nil || t.env.Sleep(timed, pause) != nil {
			return err
		}
	}
}

func (t *tester) once(ctx context.Context, method, url string, body []byte, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	keys, err := t.config.Credentials.Retrieve(ctx)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(ctx, keys, request, hex.EncodeToString(hash[:]), "lambda", t.config.Region, t.env.Now()); err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %.300s", method, url, response.Status, b)
	}
	return json.Unmarshal(b, answer)
}

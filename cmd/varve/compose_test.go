package main

import (
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// composed is what of localdev/compose.yaml can be compared with the command.
type composed struct {
	Services map[string]struct {
		Image       string
		Build       struct{ Context, Dockerfile string }
		Command     []string
		Environment map[string]string
		Ports       []string
		Volumes     []string
		Secrets     []string
		DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	}
	Secrets map[string]struct{ Environment string }
	Volumes map[string]any
}

func readCompose(t *testing.T) (c composed, text string) {
	t.Helper()
	b, err := os.ReadFile("../../localdev/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return c, string(b)
}

// A command of localdev/compose.yaml is one of this program's, with its flags, and listens on the port that is published, which is on loopback. Images are pinned, and
// what a service names is there.
func TestComposeServices(t *testing.T) {
	c, _ := readCompose(t)
	ours := 0
	for name, s := range c.Services {
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s: port %s is not on loopback", name, p)
			}
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, ok := c.Volumes[volume]; !ok {
				t.Errorf("%s: there is no volume %s", name, volume)
			}
		}
		for other := range s.DependsOn {
			if _, ok := c.Services[other]; !ok {
				t.Errorf("%s depends on %s", name, other)
			}
		}
		if s.Build.Context == "" {
			if !regexp.MustCompile(`:RELEASE\.\d{4}-`).MatchString(s.Image) {
				t.Errorf("%s: image %q is not pinned", name, s.Image)
			}
			continue
		}
		ours++
		if _, err := os.Stat("../../localdev/" + s.Build.Context + "/" + s.Build.Dockerfile); err != nil {
			t.Error(err)
		}
		a, _, _ := newApp("", "")
		command, rest, err := a.root().Find(s.Command)
		if err == nil {
			err = command.ParseFlags(rest)
		}
		if err == nil {
			err = command.ValidateArgs(command.Flags().Args())
		}
		if err != nil || !command.Runnable() {
			t.Errorf("%s: %v: %v", name, s.Command, err)
			continue
		}
		listen := command.Flags().Lookup("listen").Value.String()
		if port, ok := strings.CutPrefix(listen, "0.0.0.0:"); !ok || len(s.Ports) != 1 || !strings.HasSuffix(s.Ports[0], ":"+port) {
			t.Errorf("%s listens on %s, published are %v", name, listen, s.Ports)
		}
		if f := command.Flags().Lookup("token-file"); f != nil {
			secret := strings.TrimPrefix(f.Value.String(), "/run/secrets/")
			if c.Secrets[secret].Environment != "VARVE_TOKEN" || !slices.Contains(s.Secrets, secret) {
				t.Errorf("%s: token-file %s is none of the secrets %v", name, f.Value, s.Secrets)
			}
		}
	}
	if ours != 2 {
		t.Errorf("%d services of this program", ours)
	}
}

// The log of localdev/compose.yaml is one that could be opened: on the services' own names and ports, with MinIO's keys, in the bucket that is made, in its region.
func TestComposeLog(t *testing.T) {
	c, text := readCompose(t)
	varve, minio := c.Services["varve"].Environment, c.Services["minio"].Environment
	u, err := url.Parse(varve["VARVE_LOG"])
	if err != nil || u.Scheme != "aws" || !strings.Contains(text, "log/"+u.Host+"]") || u.Query().Get("region") != minio["MINIO_REGION"] {
		t.Errorf("%s: %v", varve["VARVE_LOG"], err)
	}
	for _, parameter := range []string{"s3_endpoint", "dynamodb_endpoint"} {
		endpoint, err := url.Parse(u.Query().Get(parameter))
		if err != nil {
			t.Fatal(err)
		}
		if ports := c.Services[endpoint.Hostname()].Ports; len(ports) != 1 || !strings.HasSuffix(ports[0], ":"+endpoint.Port()) {
			t.Errorf("%s is %s; its service publishes %v", parameter, endpoint, ports)
		}
	}
	if varve["AWS_ACCESS_KEY_ID"] != minio["MINIO_ROOT_USER"] || varve["AWS_SECRET_ACCESS_KEY"] != minio["MINIO_ROOT_PASSWORD"] || !strings.Contains(varve["AWS_SECRET_ACCESS_KEY"], "${MINIO_ROOT_PASSWORD:?") {
		t.Errorf("keys %v, MinIO's %v", varve, minio)
	}
}

// Package job reads jobs in JSON from standard input and writes the answers to standard output.
// What a job looks like is written down in compat/clients/job.py.
package job

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

const caseTimeout = 20 * time.Second

// Compressions are those that both Go clients have.
var Compressions = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// Case is what a job is about; each kind of job uses some of the fields.
type Case struct {
	Topic       string            `json:"topic"`
	Partitions  int32             `json:"partitions"`
	Configs     map[string]string `json:"configs"`
	Compression string            `json:"compression"`
	Acks        string            `json:"acks"`
	Idempotent  bool              `json:"idempotent"`
	MaxBytes    int32             `json:"max_bytes"`
	Records     []Record          `json:"records"`
	Starts      []int64           `json:"starts"`
	Counts      []int             `json:"counts"`
	Partition   int32             `json:"partition"`
	Timestamp   int64             `json:"timestamp"`
	Before      int64             `json:"before"`
	Group       string            `json:"group"`
	Protocol    string            `json:"protocol"`
	Assignor    string            `json:"assignor"`
}

// Wanted is how many records a consumer is to read.
func (c Case) Wanted() int {
	wanted := 0
	for _, count := range c.Counts {
		wanted += count
	}
	return wanted
}

// Record is a record as it travels in a job. A nil []byte is null in JSON and a byte slice is
// base64: just what the job format says.
type Record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []Header `json:"headers"`
	Timestamp int64    `json:"timestamp"`
}

// Header is a pair in JSON.
type Header struct {
	Name  string
	Value []byte
}

func (h *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Name, &h.Value})
}

func (h Header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.Name, h.Value})
}

// Doer does one kind of job.
type Doer func(ctx context.Context, bootstrap string, c Case) (any, error)

var jobs = json.NewDecoder(bufio.NewReader(os.Stdin))

// UntilEnd is done when standard input ends; only for the last job.
func UntilEnd() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		jobs.More()
		cancel()
	}()
	return ctx
}

var telling sync.Mutex

// Tell writes an event of a member of a group; compat/clients/member.py says which there are.
func Tell(event map[string]any) {
	telling.Lock()
	defer telling.Unlock()
	event["at"] = time.Now().UnixMilli()
	if err := json.NewEncoder(os.Stdout).Encode(event); err != nil {
		os.Exit(2)
	}
}

// Serve answers jobs until there are no more.
func Serve(doers map[string]Doer) {
	answers := json.NewEncoder(os.Stdout)
	for jobs.More() {
		var asked struct {
			Do        string `json:"do"`
			Bootstrap string `json:"bootstrap"`
			Case      Case   `json:"case"`
		}
		if err := jobs.Decode(&asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		ctx, cancel := context.WithTimeout(context.Background(), caseTimeout)
		var answer any
		err := fmt.Errorf("no such job: %s", asked.Do)
		if doer, there := doers[asked.Do]; there {
			answer, err = doer(ctx, asked.Bootstrap, asked.Case)
		}
		cancel()
		line := map[string]any{"ok": answer}
		if err != nil {
			line = map[string]any{"error": err.Error()}
		}
		if err := answers.Encode(line); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
}

// Version is the version of a module that this program was built with.
func Version(module string) string {
	info, there := debug.ReadBuildInfo()
	if there {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return "unknown"
}

// Transactional producers of franz-go, each call made on request.
//
// A line of input is a producer's name, a call and its arguments; the line of output is "=" and the error, if any.
// Offsets go through a GroupTransactSession, which commits them at the end of the transaction, from what it polled.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 20 * time.Second

type producer struct {
	client  *kgo.Client
	session *kgo.GroupTransactSession // nil without a group
	topic   string
}

var producers = map[string]*producer{}

// start makes a producer: bootstrap, transactional id, topic, group ("-" for none), time-out.
func start(ctx context.Context, name string, of []string) error {
	timeout, err := strconv.Atoi(of[4])
	if err != nil {
		return err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(of[0]),
		kgo.TransactionalID(of[1]),
		kgo.TransactionTimeout(time.Duration(timeout) * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	made := &producer{topic: of[2]}
	if of[3] == "-" {
		made.client, err = kgo.NewClient(options...)
	} else {
		options = append(options, kgo.ConsumerGroup(of[3]), kgo.ConsumeTopics(of[2]),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if made.session, err = kgo.NewGroupTransactSession(options...); err == nil {
			made.client = made.session.Client()
		}
	}
	if err == nil {
		producers[name] = made
		_, _, err = made.client.ProducerID(ctx)
	}
	return err
}

// poll takes what the session consumes, until there is something to commit.
func (p *producer) poll(ctx context.Context) error {
	for {
		fetches := p.session.PollFetches(ctx)
		if err := fetches.Err(); err != nil || fetches.NumRecords() > 0 {
			return err
		}
	}
}

func (p *producer) end(ctx context.Context, how kgo.TransactionEndTry) error {
	if p.session == nil {
		return p.client.EndTransaction(ctx, how)
	}
	committed, err := p.session.End(ctx, how)
	if err == nil && how == kgo.TryCommit && !committed {
		return errors.New("aborted instead")
	}
	return err
}

func do(ctx context.Context, name, call string, words []string) error {
	if call == "start" {
		return start(ctx, name, words)
	}
	p := producers[name]
	switch call {
	case "begin":
		if p.session != nil {
			return p.session.Begin()
		}
		return p.client.BeginTransaction()
	case "send":
		partition, err := strconv.ParseInt(words[0], 10, 32)
		if err != nil {
			return err
		}
		record := &kgo.Record{Topic: p.topic, Partition: int32(partition), Value: []byte(words[1])}
		return p.client.ProduceSync(ctx, record).FirstErr()
	case "offsets":
		return p.poll(ctx)
	case "commit":
		return p.end(ctx, kgo.TryCommit)
	case "abort":
		return p.end(ctx, kgo.TryAbort)
	case "close":
		if p.session != nil {
			p.session.Close()
		} else {
			p.client.Close()
		}
		return nil
	}
	return errors.New(call)
}

func told(line string) string {
	words := strings.Fields(line)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := do(ctx, words[0], words[1], words[2:])
	if err == nil {
		return ""
	}
	var code *kerr.Error
	if errors.As(err, &code) {
		return code.Message
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

func main() {
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		fmt.Println("= " + told(input.Text()))
	}
}

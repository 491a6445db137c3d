package sim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
	"github.com/varvelog/varve/sdk"
	"github.com/varvelog/varve/segment"
)

// Keeper changes a topic while others use it, and after each change raises the floor, as a sweep will. What one of its lives has begun the next
// completes.
type Keeper struct {
	Name, Topic string
	Changes     []sdk.Alteration
}

// Play implements Actor.
func (x *Keeper) Play(w *World) {
	w.Lives(x.Name, Life{}, len(x.Changes), func(p *Process, left int) {
		log := p.Open()
		if log == nil {
			return
		}
		for ; left > 0 && p.Rest(p.Chance("change").Within(0, 6*time.Second)); left-- {
			if !x.change(p, log, x.Changes[len(x.Changes)-left]) || !p.Rest(p.Chance("floor").Within(0, 6*time.Second)) {
				return
			}
			w.raiseFloor(x.Topic)
			p.Turn()
		}
	})
}

// change asks for the change until it is made, or the process dead.
func (x *Keeper) change(p *Process, log *sdk.Log, c sdk.Alteration) bool {
	for {
		t, err := log.Admin().AlterTopic(p.ctx, x.Topic, c)
		if !p.Rest(p.Chance("changed").Within(1, time.Second)) {
			return false
		}
		if err == nil {
			p.Note("changed %s: version %d, %d partitions", x.Topic, t.Version, t.Partitions)
			p.world.Count("topic changed")
			p.world.Grown(x.Topic, t.Partitions)
			return true
		}
		p.Note("cannot change %s: %s", x.Topic, brief(err))
		if p.world.Calm() {
			p.world.Bad(About{By: p.Name}, "cannot change %s, though nothing fails any more: %v", x.Topic, err)
			return false
		}
	}
}

// Prove implements Actor: what it has asked for is so, and may be asked for again.
func (x *Keeper) Prove(w *World) {
	p := w.Start(x.Name+" at last", Life{Safe: true})
	if log := p.Open(); log != nil && len(x.Changes) > 0 {
		x.change(p, log, x.Changes[len(x.Changes)-1])
	}
}

// raiseFloor does to the topic's heads what a sweep will do.
func (w *World) raiseFloor(topic string) {
	row, err := w.table().Topic(context.Background(), topic)
	w.must(err)
	floor := segment.NewID(w.clock().Add(-time.Second), row.Class(), segment.InBucket, 1, segment.ID{})
	for _, lane := range row.Lanes {
		var conflict *types.TransactionConflictException
		for err = w.setFloor(lane, floor); errors.As(err, &conflict); err = w.setFloor(lane, floor) {
			w.Sleep(time.Millisecond)
		}
		w.must(err)
	}
}

func (w *World) setFloor(lane metadata.LaneID, floor segment.ID) error {
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	k := metadata.HeadKey(lane)
	_, err := dynamodb.NewFromConfig(w.aws(w.engine.Load())).UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
		TableName: aws.String(tableName), Key: map[string]types.AttributeValue{"pk": text(k.PK), "sk": text(k.SK)},
		UpdateExpression: aws.String("SET #f = :f"), ExpressionAttributeNames: map[string]string{"#f": "floor"},
		ExpressionAttributeValues: map[string]types.AttributeValue{":f": text(floor.String())},
	})
	return err
}

// Misfortune befalls processes whatever they are about: freezes of hours, wall clocks that are set, kills.
type Misfortune struct {
	Name  string
	Times int
	Every time.Duration // it strikes within this after the last time; 0: soon
	Among string        // only processes whose names begin so, and who are not done with their part; empty: all
}

// Play implements Actor.
func (x *Misfortune) Play(w *World) {
	c := w.Chance(x.Name)
	for range x.Times {
		if w.Idle(c.Within(0, cmp.Or(x.Every, 8*time.Second))); w.Calming() {
			return
		}
		var living []*Process
		for _, p := range w.Processes() {
			if p.Alive() && !p.life.Safe && !(w.removes && p.Played()) && (x.Among == "" || strings.HasPrefix(p.Name, x.Among) && !p.Played()) {
				living = append(living, p)
			}
		}
		if len(living) == 0 {
			continue
		}
		slices.SortFunc(living, func(a, b *Process) int { return strings.Compare(a.Name, b.Name) })
		p := living[c.Below(len(living))]
		switch c.Below(4) {
		case 0:
			p.Kill("by misfortune")
		case 1:
			p.Freeze(c.Within(time.Hour, 5*time.Hour), c.OneIn(2))
		default:
			p.Jump(c.Within(-skewMost, skewMost))
		}
	}
}

// Prove implements Actor.
func (x *Misfortune) Prove(*World) {}

package dynamo

import (
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/varvelog/varve/metadata"
)

// Items is what CommitStep would send, as actions for a transaction that somebody else sends, with a token and items of its own: one for each lane that is
// appended to, and one for each lane of a group whose offsets are moved. At least one action of a transaction is left for the sender. Each
// names this table by its name only, so the sender must be in its account and region. Commits should be Once: nobody knows how often they are sent.
func (t *Table) Items(commits []metadata.Commit, offsets []metadata.StepOffsets) ([]types.TransactWriteItem, error) {
	if err := validateParts(commits, offsets, maxActions-1); err != nil {
		return nil, committing("Items", "", metadata.Key{}).error("", err)
	}
	return t.items(commits, offsets), nil
}

// items are commits and moves of offsets as actions of a transaction, in this order.
func (t *Table) items(commits []metadata.Commit, offsets []metadata.StepOffsets) []types.TransactWriteItem {
	items := make([]types.TransactWriteItem, 0, len(commits)+len(offsets))
	for i := range commits {
		items = append(items, types.TransactWriteItem{Update: t.updateIn(metadata.HeadKey(commits[i].Lane), commitExpr(&commits[i]))})
	}
	for i := range offsets {
		items = append(items, types.TransactWriteItem{Update: t.updateIn(metadata.OffsetsKey(offsets[i].Group, offsets[i].Lane), stepExpr(&offsets[i]))})
	}
	return items
}

package sdk_test

import (
	"testing"

	"github.com/varvelog/varve/sdk"
)

// reach is the log by which a test's producers, readers and members reach the one that is given. It is another one while TestRemote_Again runs.
var reach = func(_ testing.TB, log *sdk.Log, _ sdk.Hook) *sdk.Log { return log }

// setReach lets the test reach its logs over HTTP.
func setReach(t *testing.T) {
	direct := reach
	t.Cleanup(func() { reach = direct })
	reach = func(t testing.TB, log *sdk.Log, hook sdk.Hook) *sdk.Log {
		t.Helper()
		h := newHop(t, log)
		if hook == nil {
			return h.dial(t)
		}
		return h.dial(t, sdk.WithHooks(hook))
	}
}

// TestRemote_Again runs those tests again, their producers, readers and members of groups over HTTP, that are of what these promise and not of what they ask of table
// and store.
func TestRemote_Again(t *testing.T) {
	setReach(t)
	for i, again := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Produce_LargeFlushIsSeveralBatches", TestProduce_LargeFlushIsSeveralBatches},
		{"Produce_UnknownTopicAndBadInputAreTyped", TestProduce_UnknownTopicAndBadInputAreTyped},
		{"BR01_CloseFlushes", TestBR01_CloseFlushes},
		{"BR02_OversizeRecordFailsAlone", TestBR02_OversizeRecordFailsAlone},
		{"BR05_NullAndEmptyStayApart", TestBR05_NullAndEmptyStayApart},
		{"X01_FullBufferDoesNotLinger", TestX01_FullBufferDoesNotLinger},
		{"X01_WaitersDoNotLinger", TestX01_WaitersDoNotLinger},
		{"StalledLane_OthersGoOnAndFlushesAreBounded", TestStalledLane_OthersGoOnAndFlushesAreBounded},
		{"Deadline_UnknownIsToldApartFromTimedOut", TestDeadline_UnknownIsToldApartFromTimedOut},
		{"Produce_TopicDeletedUnderTheHandle", TestProduce_TopicDeletedUnderTheHandle},
		{"Produce_TopicReplacedBeforeItsHeadsAreGone", TestProduce_TopicReplacedBeforeItsHeadsAreGone},
		{"Produce_PromisesAreInOrder", TestProduce_PromisesAreInOrder},
		{"TryProduce_DoesNotWait", TestTryProduce_DoesNotWait},
		{"ProduceSync_ACallerThatGivesUpDetaches", TestProduceSync_ACallerThatGivesUpDetaches},
		{"NewProducer_RefusesSettingsThatMakeNoSense", TestNewProducer_RefusesSettingsThatMakeNoSense},
		{"ReaderReadsWhatWasWritten", TestReaderReadsWhatWasWritten},
		{"BR05_NullAndEmptyAreReadAsTheyWere", TestBR05_NullAndEmptyAreReadAsTheyWere},
		{"BR08_AReaderSeesWhatAColdProcessAppends", TestBR08_AReaderSeesWhatAColdProcessAppends},
		{"BR16_TimeLookup", TestBR16_TimeLookup},
		{"BR16_TimesBelowTheLogStartAndBetweenMilliseconds", TestBR16_TimesBelowTheLogStartAndBetweenMilliseconds},
		{"BR16_ARecordFromTheFarFuture", TestBR16_ARecordFromTheFarFuture},
		{"BR17_BelowTheLogStartFollowsThePolicy", TestBR17_BelowTheLogStartFollowsThePolicy},
		{"BR17_BelowTheLogStartIsAnErrorByDefault", TestBR17_BelowTheLogStartIsAnErrorByDefault},
		{"BR17_PastTheEndIsAnErrorUnderEveryPolicy", TestBR17_PastTheEndIsAnErrorUnderEveryPolicy},
		{"BR20_WhatIsAppendedComesAtTheNextCheck", TestBR20_WhatIsAppendedComesAtTheNextCheck},
		{"BR20_ACancelledWaitIsAnErrorAtOnce", TestBR20_ACancelledWaitIsAnErrorAtOnce},
		{"BR20_NoPartitionWaitsForAnotherAndAnyWakes", TestBR20_NoPartitionWaitsForAnotherAndAnyWakes},
		{"BR18_ObjectGoneInMidRead", TestBR18_ObjectGoneInMidRead},
		{"X02_LatestIsFixedOnce", TestX02_LatestIsFixedOnce},
		{"ReaderServesPartitionsInTurn", TestReaderServesPartitionsInTurn},
		{"X04_SeekDropsWhatWasFetchedAhead", TestX04_SeekDropsWhatWasFetchedAhead},
		{"BR17_ARuleIsFasterThanTheLogStart", TestBR17_ARuleIsFasterThanTheLogStart},
		{"ExpiredIsReadWhileItIsThere", TestExpiredIsReadWhileItIsThere},
		{"AllOfItHasExpired", TestAllOfItHasExpired},
		{"MissingBeforeItsTimeIsDamage", TestMissingBeforeItsTimeIsDamage},
		{"TimeLookupPassesWhatHasExpired", TestTimeLookupPassesWhatHasExpired},
		{"BytesOfAnotherSegment", TestBytesOfAnotherSegment},
		{"BR53_WhatCouldNotBeReadIsNotAnAnswer", TestBR53_WhatCouldNotBeReadIsNotAnAnswer},
		{"ReaderOfADeletedTopic", TestReaderOfADeletedTopic},
		{"ReaderRefusesNonsense", TestReaderRefusesNonsense},
		{"ReplayStopsAtTheBarrierAndHandsOver", TestReplayStopsAtTheBarrierAndHandsOver},
		{"ReplayResumes", TestReplayResumes},
		{"ReplayFilter", TestReplayFilter},
		{"ReplayRefuses", TestReplayRefuses},
		{"ReplayThroughTrouble", TestReplayThroughTrouble},
		{"ReplayOfDamage", TestReplayOfDamage},
		{"ReplayGivesUpAtOnce", TestReplayGivesUpAtOnce},
		{"ReplayProgress", TestReplayProgress},
		{"AppendIf", TestAppendIf},
		{"AppendIf_OneOfTwoWins", TestAppendIf_OneOfTwoWins},
		{"AppendAtomic_AllOrNone", TestAppendAtomic_AllOrNone},
		{"AppendAtomic_OffsetsNotReadBack", TestAppendAtomic_OffsetsNotReadBack},
		{"AppendAtomic_LearnsOfGrowth", TestAppendAtomic_LearnsOfGrowth},
		{"AppendAtomic_OneClassOnly", TestAppendAtomic_OneClassOnly},
		{"AppendAtomic_TopicCreatedAnew", TestAppendAtomic_TopicCreatedAnew},
		{"AppendOnce", TestAppendOnce},
		{"AppendOnceIf", TestAppendOnceIf},
		{"BR04_LostReplyThenRetry", TestBR04_LostReplyThenRetry},
		{"Once_Mistakes", TestOnce_Mistakes},
		{"Once_DuplicatesAtOnce", TestOnce_DuplicatesAtOnce},
		{"Once_SixteenAndOneMore", TestOnce_SixteenAndOneMore},
		{"Once_Crowd", TestOnce_Crowd},
		{"Once_Growth", TestOnce_Growth},
		{"ConsumersShareATopic", TestConsumersShareATopic},
		{"X05_WhatWasNotFinishedComesAgain", TestX05_WhatWasNotFinishedComesAgain},
		{"ConsumerRefuses", TestConsumerRefuses},
		{"BR46_GroupNames", TestBR46_GroupNames},
		{"BR23_CommittedOffsetNeverGoesBack", TestBR23_CommittedOffsetNeverGoesBack},
		{"ResetIsNotUndoneByWhatWasRead", TestResetIsNotUndoneByWhatWasRead},
		{"BR24_Zombie", TestBR24_Zombie},
		{"NothingIsDeliveredAfterARefusedCommit", TestNothingIsDeliveredAfterARefusedCommit},
		{"BR25_CleanStop", TestBR25_CleanStop},
		{"BR26_Clocks", TestBR26_Clocks},
		{"BR27_GroupReadsTheNewTopic", TestBR27_GroupReadsTheNewTopic},
		{"BR28_GroupReadsNewPartitions", TestBR28_GroupReadsNewPartitions},
		{"BR30_OneSlowPartition", TestBR30_OneSlowPartition},
		{"BR31_IdleGroupKeepsItsPlace", TestBR31_IdleGroupKeepsItsPlace},
		{"TopicGoneBeforeItsStart", TestTopicGoneBeforeItsStart},
		{"StaleClaimIsNotBegun", TestStaleClaimIsNotBegun},
		{"StartIsFixedThoughAnotherPartitionIsLost", TestStartIsFixedThoughAnotherPartitionIsLost},
		{"TopicGoneLeavesTheSubscription", TestTopicGoneLeavesTheSubscription},
		{"LastTopicGone", TestLastTopicGone},
		{"TopicCreatedAnewIsReadSoon", TestTopicCreatedAnewIsReadSoon},
		{"GrowthIsNoticedSoon", TestGrowthIsNoticedSoon},
		{"DescribeGroupWhoseTopicIsGone", TestDescribeGroupWhoseTopicIsGone},
		{"TopicGoneWhileDescribed", TestTopicGoneWhileDescribed},
		{"CrashBetweenReceivingAndFinishing", TestCrashBetweenReceivingAndFinishing},
		{"CommitAtomicUnderFaults", TestCommitAtomicUnderFaults},
		{"OnAssignedSaysWhereToStart", TestOnAssignedSaysWhereToStart},
		{"CommitsThatMakeNoSense", TestCommitsThatMakeNoSense},
		{"HaltedIsToldOnce", TestHaltedIsToldOnce},
		{"OnAssignedMayPauseAndSeek", TestOnAssignedMayPauseAndSeek},
		{"OnAssignedReturnsNonsense", TestOnAssignedReturnsNonsense},
		{"CommitTimeIsTheServices", TestCommitTimeIsTheServices},
		{"RefusedMemberMakesNoGroup", TestRefusedMemberMakesNoGroup},
		{"ConsumerUsedByMany", TestConsumerUsedByMany},
		{"HandleGoesOnWhereItEnded", TestHandleGoesOnWhereItEnded},
		{"HandleBlocksItsPartitionOnly", TestHandleBlocksItsPartitionOnly},
		{"HandleParks", TestHandleParks},
		{"HandleRetriesInOrder", TestHandleRetriesInOrder},
		{"HandleKeysInParallel", TestHandleKeysInParallel},
		{"HandleRefuses", TestHandleRefuses},
		{"HandleDoesNotUndoAReset", TestHandleDoesNotUndoAReset},
		{"HandleBoundsWhatWaits", TestHandleBoundsWhatWaits},
		{"HandleFenced", TestHandleFenced},
		{"HandlerThatDoesNotListen", TestHandlerThatDoesNotListen},
	} {
		if raced && i%4 != 0 {
			continue // with the race detector every fourth, make sim plays all
		}
		t.Run(again.name, again.run)
	}
}

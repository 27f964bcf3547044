-- The kinds of its jobs: they can be enqueued before the first worker starts.
select tallyman.register_kind('labels.push', queue => 'labels', max_attempts => 8);
select tallyman.register_kind('labels.drift', queue => 'label-checks', priority => 1, max_attempts => 5);
-- Created here: if the first change created it, other changes would wait until that one commits.
select tallyman.prepare_kind('labels.push');

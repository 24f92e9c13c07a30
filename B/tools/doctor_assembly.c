// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What assembly would leave as it is, by its own plan: members that are stale, copied, incomplete, or somebody else's.
 */
#include <stdlib.h>

#include "../daemon/facts.h"
#include "../daemon/plan.h"
#include "doctor.h"
#include "message.h"

int examine_assembly(struct findings *f)
{
	struct look look;
	struct plan plan;
	int result;

	if (getenv("LARDER_DEVICES")) /* images are not assembled */
		return LARDER_DONE;
	result = facts_look(&look, false);
	if (result)
		return result;
	look.facts.nr_stopped = 0; /* what somebody stopped is looked at too */
	look.facts.wait = 0; /* and what is missing stays missing */
	plan_make(&look.facts, &plan);
	for (size_t i = 0; i < plan.nr_refusals; i++)
		finding(f, plan.refusal[i].below ? FINDING_ADVICE : FINDING_WRONG, "assembly", "larder assemble", "%s", plan.refusal[i].text);
	for (size_t i = 0; i < plan.nr_steps; i++)
		if (plan.step[i].degraded)
			finding(f, FINDING_ADVICE, "assembly", plan.step[i].name,
				"%s is missing, and nothing would be lost by a start without it; attach it, or larder assemble --all --degraded",
				plan.step[i].kind == PLAN_CACHE ? "an SSD of it" : "its cache");
	for (size_t i = 0; i < look.facts.nr_half; i++)
		finding(f, FINDING_WRONG, "assembly", look.facts.half[i], "a start of it did not end; larder assemble --all, or dmsetup remove %s",
			look.facts.half[i]);
	plan_free(&plan);
	facts_free(&look);
	return LARDER_DONE;
}

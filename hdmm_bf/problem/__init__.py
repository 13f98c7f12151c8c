"""The problem: a workload under a policy as an ordinary differential-privacy problem, whole and by its factors."""

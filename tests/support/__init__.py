"""What tests share: oracles, instances, forgers, runners. No test file imports another one."""

SYSTEM = ''
accumulative_counts = 16
batch_size = 6
custom_hooks = [dict(every_n_iters=500, type='xtuner.engine.hooks.EvaluateChatHook')]
dataloader_num_workers = 0
default_hooks = dict(checkpoint=dict(by_epoch=False, interval=2000))
evaluation_freq = 500
max_length = 2048
optim_wrapper = dict(accumulative_counts=16, type='mmengine.optim.AmpOptimWrapper')
train_dataloader = dict(batch_size=6, num_workers=0)

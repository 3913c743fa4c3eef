import { NestFactory } from '@nestjs/core';

import { AppModule } from './app.module.ts';

const app = await NestFactory.createApplicationContext(AppModule);
app.enableShutdownHooks();
